// The command `trireme`: one file per subcommand, all behind run().
//
// Errors end as one sentence on standard error and the exit code of DESIGN 7 (2 for wrong usage).
#pragma once

namespace trireme {
inline namespace v0 {

namespace train {
class ModelRegistry;
}

namespace cli {

/// Parses the command line and runs it; returns the exit code.
int run(int argc, char** argv);
/// The same for a program with other models; its name is the registry's.
int run(int argc, char** argv, const train::ModelRegistry& models);

}  // namespace cli
}  // namespace v0
}  // namespace trireme
