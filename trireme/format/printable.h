// Makes any bytes, such as a model's output, safe to print on a terminal. A pure function.
#pragma once

#include <string>
#include <string_view>

namespace trireme::inline v0::format {

/// `text` as a terminal can show it: control bytes and bytes outside of valid UTF-8 become '?',
/// except newline and tab.
std::string printable(std::string_view text);

}  // namespace trireme::inline v0::format
