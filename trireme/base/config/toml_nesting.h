// Finds TOML that is nested too deeply, before it is parsed: TOML parsers recurse, and a deeply
// nested file would overflow the stack.
#pragma once

#include <string_view>

namespace trireme::inline v0 {

inline constexpr int kMostNesting = 100;  // brackets, and parts of a dotted name

/// The first line of `text` (from 1) that is nested deeper than kMostNesting; 0 if there is none.
int too_deep_line(std::string_view text);

}  // namespace trireme::inline v0
