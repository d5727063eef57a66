// The command `trireme`: one file per subcommand, all behind run().
//
// Errors end as one sentence on standard error and the exit code of DESIGN 7 (2 for wrong usage).
#pragma once

#include <string>

namespace trireme {
inline namespace v0 {
namespace cli {

/// Parses the command line and runs it; returns the exit code. `name`: the program's, in help.
int run(int argc, char** argv, const std::string& name = "trireme");

}  // namespace cli
}  // namespace v0
}  // namespace trireme
