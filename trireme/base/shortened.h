// shortened: a value as a sentence shows it, however long it is.
#pragma once

#include <string>
#include <string_view>

namespace trireme {
inline namespace v0 {

/// The first 60 bytes, and how many there are: "xxx… (5000 bytes)".
inline std::string shortened(std::string_view text) {
  constexpr std::size_t kMost = 60;
  if (text.size() <= kMost) return std::string(text);
  return std::string(text.substr(0, kMost)) + "… (" + std::to_string(text.size()) + " bytes)";
}

}  // namespace v0
}  // namespace trireme
