// The small program `trireme` runs the commands that have no use for LibTorch, and becomes the
// whole program for everything else. So these commands start in a tenth of the time, and
// launchers, coordinators and hosts' agents take a fifth of the memory.
#pragma once

#include <optional>
#include <string>

namespace trireme::inline v0::cli {

/// Runs the light command (command_list.h) that argv names; returns its exit code. nullopt: nothing
/// was run or printed, since argv is wrong or is for the whole program.
std::optional<int> run_light_command(int argc, char** argv);

/// Becomes the whole program. If that cannot be started, prints why and returns an exit code.
int become_whole_program(char** argv);

/// The path of the small program; of this program if there is none beside it. Throws ResourceError
/// without /proc.
std::string own_program();
/// The path of this program.
std::string this_executable();

}  // namespace trireme::inline v0::cli
