// Reads whole files. No state; thread safe.
#pragma once

#include <optional>
#include <string>

#include "trireme/base/error.h"

namespace trireme::inline v0 {

/// The content of the file `path`, which may be a pipe. nullopt if unreadable; errno says why.
std::optional<std::string> try_read_file(const std::string& path);

/// The same. Throws ConfigError with `context`: "cannot read `what``path`: No such file ...".
/// `what` is empty or names the kind of file, followed by a space: "the configuration ".
std::string read_file(const std::string& path, const std::string& what, ErrorContext context);

}  // namespace trireme::inline v0
