// parsed(): the number that a text is.
#pragma once

#include <charconv>
#include <optional>
#include <string_view>
#include <system_error>

namespace trireme::inline v0 {

/// The number that the whole of `text` is, in decimal. nullopt if it is none, has anything before
/// or behind it, or is out of the range of T.
template <class T>
std::optional<T> parsed(std::string_view text) {
  T value{};
  const char* const end = text.data() + text.size();
  const auto [read, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || read != end) return std::nullopt;
  return value;
}

}  // namespace trireme::inline v0
