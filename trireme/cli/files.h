// Reads and writes whole files that the user named.
#pragma once

#include <string>

namespace trireme::inline v0::cli {

/// ConfigError with `advice` if it cannot be read. `operation`: the command, for the error.
std::string read_file(const std::string& path, const std::string& operation,
                      const std::string& advice);
/// ResourceError naming the file if it cannot be written.
void write_file(const std::string& path, const std::string& text, const std::string& operation);

}  // namespace trireme::inline v0::cli
