// Parses the command line without running the command: for run() and for tests.
#pragma once

#include <optional>

#include "trireme/command/command.h"

namespace trireme::inline v0::command {

/// Sets invocation.action. If the arguments are wrong, or ask only for help, prints the message and
/// returns the exit code.
std::optional<int> parse(CLI::App& app, const Invocation& invocation);

}  // namespace trireme::inline v0::command
