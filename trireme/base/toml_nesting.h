// TOML whose tables and arrays lie deeper in one another than any of ours is refused before it is
// parsed: parsers of it recurse, and a deep file would end the process by a signal.
#pragma once

#include <string_view>

namespace trireme {
inline namespace v0 {

inline constexpr int kMostNesting = 100;  // brackets, and the parts of a dotted name

/// 0, or the line (from 1) where `text` goes deeper.
int too_deep_line(std::string_view text);

}  // namespace v0
}  // namespace trireme
