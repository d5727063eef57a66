// shortened(): a value of any length, cut for use in a message.
#pragma once

#include <string>
#include <string_view>

namespace trireme::inline v0 {

/// The text, or its first `most` bytes, an ellipsis and its length: "xxx... (5000 bytes)".
inline std::string shortened(std::string_view text, std::size_t most = 60) {
  if (text.size() <= most) return std::string(text);
  return std::string(text.substr(0, most)) + "… (" + std::to_string(text.size()) + " bytes)";
}

}  // namespace trireme::inline v0
