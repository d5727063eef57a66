#include "trireme/train/time_limit.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <iterator>
#include <string_view>
#include <utility>

#include "trireme/base/refuse.h"
#include "trireme/base/shortened.h"

namespace trireme::inline v0::train {
namespace {

using std::chrono::nanoseconds;

// Largest first, but "min" and "ms" come before "m", which is their prefix.
constexpr std::pair<std::string_view, double> kUnits[] = {
    {"d", 86400e9}, {"h", 3600e9}, {"min", 60e9}, {"ms", 1e6}, {"m", 60e9}, {"s", 1e9}};
constexpr double kLongest = 1e18;  // ns: 31 years

[[noreturn]] void refuse_time(const std::string& text) {
  refuse("config", "train.max_time = \"" + shortened(text) + "\" is not a duration",
         "Write numbers with the units d, h, m, s, the largest first: \"11h50m\", \"90s\"; leave "
         "it empty for no limit.");
}

}  // namespace

std::optional<Duration> parse_time_limit(const std::string& text) {
  if (text.empty()) return std::nullopt;
  double total = 0, unit_before = kLongest;
  for (std::string_view rest = text; !rest.empty();) {
    double number = 0;
    const auto [end, failure] =
        std::from_chars(rest.data(), rest.data() + rest.size(), number, std::chars_format::fixed);
    if (failure != std::errc() || !(number >= 0)) refuse_time(text);
    rest.remove_prefix(static_cast<std::size_t>(end - rest.data()));
    const auto unit =
        std::ranges::find_if(kUnits, [&](const auto& one) { return rest.starts_with(one.first); });
    if (unit == std::end(kUnits) || unit->second >= unit_before) refuse_time(text);
    rest.remove_prefix(unit->first.size());
    unit_before = unit->second;
    total += number * unit->second;
  }
  if (!(total >= 1e6) || total > kLongest) refuse_time(text);
  return nanoseconds(static_cast<std::int64_t>(total));
}

}  // namespace trireme::inline v0::train
