// shortened(): a value of any length, cut for use in a message.
#pragma once

#include <string>
#include <string_view>

namespace trireme::inline v0 {

/// The text, or its first `most` bytes, an ellipsis and its length: "xxx... (5000 bytes)". Cuts no
/// UTF-8 character in two.
inline std::string shortened(std::string_view text, std::size_t most = 60) {
  if (text.size() <= most) return std::string(text);
  while (most > 0 && (static_cast<unsigned char>(text[most]) & 0xC0) == 0x80) --most;
  return std::string(text.substr(0, most)) + "… (" + std::to_string(text.size()) + " bytes)";
}

}  // namespace trireme::inline v0
