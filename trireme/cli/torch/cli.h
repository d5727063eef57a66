// The command `trireme`: run() calls its subcommands, one file each. An error becomes a message on
// standard error and an exit code (docs/architecture.md; 2 for wrong usage).
#pragma once

#include <string>

namespace trireme::inline v0::cli {

/// Parses and runs the command line; returns the exit code. `name`: the program's name, for help.
int run(int argc, char** argv, const std::string& name = "trireme");

}  // namespace trireme::inline v0::cli
