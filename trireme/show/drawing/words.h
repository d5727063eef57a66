// Pieces of text that the drawings share, and their check of numbers. Pure functions.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "trireme/base/joined.h"

namespace trireme::inline v0::show {

/// `text` and blanks, at least `width` characters in all.
std::string padded(std::string text, std::size_t width);
/// A line of text without the blanks at its end, and a newline.
std::string line_of(const std::string& text);
/// An object of JSON as one line. Bytes that are not UTF-8 become U+FFFD.
std::string json_line(const nlohmann::ordered_json& object);
/// "1.50": `digits` after the point.
std::string fixed(double value, int digits);
/// "1,234", "9.5", "0.0123": whole from ten on, else at most three digits.
std::string figure_text(double value);

/// ConfigError unless `condition`.
void require(bool condition, const std::string& what, const std::string& advice);
/// ConfigError unless `value` is from `least` to `most`:
/// "the number of ranks cannot be 9. Use 2 to 8."
void check_range(const std::string& what, int value, int least, int most);

/// The runs of consecutive numbers, each as its first and its last.
std::vector<std::pair<int, int>> runs_of(const std::vector<int>& numbers);

/// "0, 2, 5".
template <class Numbers>
std::string listed(const Numbers& numbers, std::string_view between = ", ") {
  return joined(
      numbers, [](auto number) { return std::to_string(number); }, between);
}

}  // namespace trireme::inline v0::show
