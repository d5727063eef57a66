// refuse(): a command line, a configuration or a file that a command cannot take.
#pragma once

#include <string>

#include "trireme/base/error.h"

namespace trireme::inline v0::cli {

/// Throws ConfigError: `what` is wrong, and `advice` says what to do. `operation`: the command.
[[noreturn]] inline void refuse(const std::string& operation, const std::string& what,
                                const std::string& advice) {
  throw ConfigError(what, {.operation = operation, .advice = advice});
}

}  // namespace trireme::inline v0::cli
