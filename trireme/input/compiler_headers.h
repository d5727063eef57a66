// Where this machine's C++ compiler keeps its library headers, asked of the compiler itself.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace trireme {
inline namespace v0 {
namespace input {

/// Runs `c++ -E -x c++ -v /dev/null` (else g++, clang++; no shell) and returns the include folders
/// that hold its C++ library (a path component is "c++"), without those inside another. Throws
/// ConfigError where there is no compiler or it names none.
std::vector<std::string> compiler_header_folders();

/// The part that reads the compiler's output.
std::vector<std::string> parse_include_folders(std::string_view compiler_output);

}  // namespace input
}  // namespace v0
}  // namespace trireme
