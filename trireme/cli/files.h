// Writes whole files that the user named.
#pragma once

#include <string>

namespace trireme::inline v0::cli {

/// ResourceError naming the file if it cannot be written. `operation`: the command, for the error.
void write_file(const std::string& path, const std::string& text, const std::string& operation);

/// Whether write_file() could write the file. Keeps an existing file's text; leaves no new file.
bool can_write(const std::string& path);
/// ConfigError if it could not.
void check_can_write(const std::string& path, const std::string& operation);

}  // namespace trireme::inline v0::cli
