// refuse(): throws for a configuration, a command line, a file or a call that cannot be taken.
#pragma once

#include <string>

#include "trireme/base/error.h"

namespace trireme::inline v0 {

/// Throws ConfigError: `what` is wrong, and `advice` says what to do. `operation`: as in
/// ErrorContext; of a command, its name.
[[noreturn]] inline void refuse(const std::string& operation, const std::string& what,
                                const std::string& advice) {
  throw ConfigError(what, {.operation = operation, .advice = advice});
}

}  // namespace trireme::inline v0
