// The small program `trireme` runs the commands that have no use for LibTorch, and becomes the whole
// program for everything else. So these commands start in a tenth of the time, and launchers,
// coordinators and hosts' agents take a fifth of the memory.
#pragma once

#include <optional>
#include <string>

namespace trireme::inline v0::cli {

/// The exit code of the light command (command_list.h) that argv names rightly; none: nothing was run or
/// printed, and the whole program is to be asked.
std::optional<int> run_light_command(int argc, char** argv);

/// Becomes the whole program; returns an exit code only if it cannot be started, which it prints.
int become_whole_program(char** argv);

/// The path of the small program, in either. Throws ResourceError without /proc.
std::string own_program();
/// The path of the program that runs.
std::string this_executable();

}  // namespace trireme::inline v0::cli
