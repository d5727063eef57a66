#include "trireme/base/words.h"

#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <utility>

namespace trireme::inline v0 {
namespace {

// Without trailing zeros: "0.42", "1.8", "2".
std::string rounded(double value, int digits) {
  char text[64];
  std::snprintf(text, sizeof text, "%.*f", digits, value);
  std::string out = text;
  if (out.find('.') != std::string::npos) {
    out.resize(out.find_last_not_of('0') + 1);
    if (out.back() == '.') out.pop_back();
  }
  return out;
}

// At most three significant digits and no exponent: "0.42", "1.8", "74.2", "749".
std::string three_digits(double value) {
  return rounded(value, value < 9.995 ? 2 : value < 99.95 ? 1 : 0);
}

// "3 min 20 s"; "2 h" if the rest is zero.
std::string in_two(long whole, const char* unit, long rest, const char* smaller) {
  std::string text = grouped(whole) + " " + unit;
  if (rest > 0) text += " " + std::to_string(rest) + " " + smaller;
  return text;
}

}  // namespace

std::string grouped(std::int64_t value) {
  std::string out = std::to_string(value);
  const std::size_t first = value < 0 ? 1 : 0;
  for (std::size_t i = out.size(); i > first + 3; i -= 3) out.insert(i - 3, 1, ',');
  return out;
}

std::string counted(std::int64_t count, std::string_view word, std::string_view plural) {
  std::string out = grouped(count) + " ";
  if (count == 1) return out.append(word);
  return plural.empty() ? out.append(word) + "s" : out.append(plural);
}

std::string bytes_text(double bytes) {
  if (!std::isfinite(bytes)) return "unknown";
  if (bytes < 999.5) return counted(std::lround(bytes), "byte");
  const char* unit = "";
  for (const char* larger : {"kB", "MB", "GB", "TB", "PB", "EB"}) {
    if (bytes < 999.5) break;
    bytes /= 1000;
    unit = larger;
  }
  char text[64];
  std::snprintf(text, sizeof text, bytes < 99.95 ? "%.1f %s" : "%.0f %s", bytes, unit);
  return text;
}

std::string size_text(std::size_t bytes) {
  constexpr std::array<std::pair<int, const char*>, 3> kUnits = {
      {{30, "GiB"}, {20, "MiB"}, {10, "KiB"}}};
  for (const auto& [bits, unit] : kUnits) {
    const std::size_t one = std::size_t{1} << bits;
    if (bytes >= one && bytes % one == 0)
      return grouped(static_cast<std::int64_t>(bytes / one)) + " " + unit;
  }
  return grouped(static_cast<std::int64_t>(bytes)) + " B";
}

std::string duration_text(double seconds) {
  if (!std::isfinite(seconds)) return "unknown";
  if (seconds < 0) return "-" + duration_text(-seconds);
  if (seconds == 0) return "0 s";
  if (seconds < 0.9995e-3) return three_digits(seconds * 1e6) + " us";
  if (seconds < 0.9995) return three_digits(seconds * 1e3) + " ms";
  if (seconds < 9.95) return rounded(seconds, 1) + " s";
  if (seconds > 1e15) return number_text(seconds / 86400) + " d";
  const long whole = std::lround(seconds);
  if (whole < 60) return std::to_string(whole) + " s";
  if (whole < 3600) return in_two(whole / 60, "min", whole % 60, "s");
  const long minutes = std::lround(seconds / 60);
  if (minutes < 24 * 60) return in_two(minutes / 60, "h", minutes % 60, "min");
  const long hours = std::lround(seconds / 3600);
  return in_two(hours / 24, "d", hours % 24, "h");
}

// The sign of a NaN says nothing: the NaN that x86 makes of 0 / 0 is negative.
std::string formatted(const char* format, double value) {
  char text[64];
  std::snprintf(text, sizeof text, format, std::isnan(value) ? std::fabs(value) : value);
  return text;
}

std::string number_text(double value) {
  if (std::isnan(value)) return "nan";
  char text[64];
  return {text, std::to_chars(text, text + sizeof text, value).ptr};
}

}  // namespace trireme::inline v0
