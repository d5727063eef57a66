// Writes a file that the user named. Throws ResourceError that says which.
#pragma once

#include <string>

namespace trireme {
inline namespace v0 {
namespace command {

/// `operation`: the command that wants it, for the error.
void write_file(const std::string& path, const std::string& text, const std::string& operation);

}  // namespace command
}  // namespace v0
}  // namespace trireme
