// Bytes as text, with two lower-case hexadecimal digits each.
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace trireme::inline v0 {

inline std::string to_hex(std::span<const std::byte> bytes) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  text.reserve(2 * bytes.size());
  for (const std::byte byte : bytes) {
    text += kDigits[std::to_integer<unsigned>(byte) >> 4];
    text += kDigits[std::to_integer<unsigned>(byte) & 15];
  }
  return text;
}

}  // namespace trireme::inline v0
