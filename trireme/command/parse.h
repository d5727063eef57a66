// The command line alone, without what it runs: for run() and for tests.
#pragma once

#include <optional>

#include "trireme/command/command.h"

namespace trireme {
inline namespace v0 {
namespace command {

/// Sets invocation.action. Where the arguments are wrong, or ask for help alone, says so and
/// returns the exit code.
std::optional<int> parse(CLI::App& app, const Invocation& invocation);

}  // namespace command
}  // namespace v0
}  // namespace trireme
