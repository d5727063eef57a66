// parse_number(): a number that is the whole of a text.
#pragma once

#include <charconv>
#include <optional>
#include <string_view>
#include <system_error>

namespace trireme::inline v0 {

/// The integer or floating-point number that `text` is; nullopt if it is something else, has
/// characters before or after it, or lies outside T. As std::from_chars: no "+", no spaces.
template <class T>
std::optional<T> parse_number(std::string_view text) {
  T value{};
  const char* const last = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data(), last, value);
  return error == std::errc() && end == last ? std::optional(value) : std::nullopt;
}

}  // namespace trireme::inline v0
