#include "trireme/show/drawing/words.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "trireme/base/error.h"
#include "trireme/base/words.h"

namespace trireme::inline v0::show {

std::string padded(std::string text, std::size_t width) {
  if (text.size() < width) text.resize(width, ' ');
  return text;
}

std::string line_of(const std::string& text) {
  return text.substr(0, text.find_last_not_of(' ') + 1) + "\n";
}

std::string json_line(const nlohmann::ordered_json& object) {
  return object.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

std::string fixed(double value, int digits) {
  return formatted(("%." + std::to_string(digits) + "f").c_str(), value);
}

std::string figure_text(double value) {
  return value >= 9.995 ? grouped(std::lround(value)) : formatted("%.3g", value);
}

std::vector<std::pair<int, int>> runs_of(const std::vector<int>& numbers) {
  std::vector<std::pair<int, int>> runs;
  for (const int number : numbers) {
    if (!runs.empty() && number == runs.back().second + 1)
      runs.back().second = number;
    else
      runs.emplace_back(number, number);
  }
  return runs;
}

void require(bool condition, const std::string& what, const std::string& advice) {
  if (!condition) throw ConfigError(what, {.operation = "show", .advice = advice});
}

void check_range(const std::string& what, int value, int least, int most) {
  if (value >= least && value <= most) return;
  throw ConfigError(
      "the number of " + what + " cannot be " + std::to_string(value),
      {.operation = "show",
       .advice = "Use " + std::to_string(least) + " to " + std::to_string(most) + "."});
}

}  // namespace trireme::inline v0::show
