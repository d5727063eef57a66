// Finds the library headers of this machine's C++ compiler by asking the compiler.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace trireme::inline v0::input {

/// Runs `c++ -E -x c++ -v /dev/null` (else g++, clang++) and returns the include folders
/// of its C++ library (a path component is "c++"). A folder inside another one is left out. Throws
/// ConfigError if there is no compiler or it names no such folder.
std::vector<std::string> compiler_header_folders();

/// Parses the compiler's output; the folders are as above.
std::vector<std::string> parse_include_folders(std::string_view compiler_output);

}  // namespace trireme::inline v0::input
