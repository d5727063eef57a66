// shortened(): a value of any length, cut for use in a message.
#pragma once

#include <string>
#include <string_view>

namespace trireme::inline v0 {

/// The text, or its first 60 bytes, an ellipsis and its length: "xxx... (5000 bytes)".
inline std::string shortened(std::string_view text) {
  constexpr std::size_t kMost = 60;
  if (text.size() <= kMost) return std::string(text);
  return std::string(text.substr(0, kMost)) + "… (" + std::to_string(text.size()) + " bytes)";
}

}  // namespace trireme::inline v0
