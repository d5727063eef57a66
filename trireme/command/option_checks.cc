#include "trireme/command/option_checks.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <utility>

#include "trireme/base/nearest.h"
#include "trireme/base/words.h"

namespace trireme::inline v0::command {
namespace {

CLI::Validator number(double least, double most, const std::string& range) {
  const auto check = [=](const std::string& text) -> std::string {
    double value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size())
      return "\"" + text + "\" is no number";
    // NaN compares false with everything.
    if (value >= least && value <= most) return {};
    return text + " is out of range: it must be " + range;
  };
  return CLI::Validator(check, range, "range");
}

// "65,536", "0.5".
std::string bound_text(double bound) {
  const bool whole = std::floor(bound) == bound && std::abs(bound) < 1e15;
  return whole ? grouped(static_cast<std::int64_t>(bound)) : number_text(bound);
}

}  // namespace

CLI::Validator at_least(double least) {
  return number(least, std::numeric_limits<double>::max(), "at least " + number_text(least));
}

CLI::Validator between(double least, double most) {
  return number(least, most, "from " + bound_text(least) + " to " + bound_text(most));
}

CLI::Validator one_of(std::vector<std::string> words) {
  std::string list;
  for (const std::string& word : words) list += (list.empty() ? "" : " | ") + word;
  const auto check = [words = std::move(words), list](const std::string& text) -> std::string {
    if (std::find(words.begin(), words.end(), text) != words.end()) return {};
    const std::string meant = nearest(text, words);
    return "\"" + text + "\" is none of " + list +
           (meant.empty() ? "" : "; did you mean " + meant + "?");
  };
  return CLI::Validator(check, list, "words");
}

}  // namespace trireme::inline v0::command
