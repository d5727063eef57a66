#include "trireme/plan/link.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <span>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/base/shortened.h"

namespace trireme::inline v0::plan {
namespace {

struct Unit {
  std::string_view name;
  double factor;
};

// Reads a number followed by one of `units`; false otherwise.
bool read(std::string_view text, std::span<const Unit> units, double& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || !(value >= 0) || !std::isfinite(value)) return false;
  const std::string_view unit(end, static_cast<std::size_t>(text.data() + text.size() - end));
  for (const Unit& one : units) {
    if (one.name != unit) continue;
    value *= one.factor;
    return true;
  }
  return false;
}

constexpr Unit kTimes[] = {{"ns", 1e-9}, {"us", 1e-6}, {"µs", 1e-6}, {"ms", 1e-3}, {"s", 1}};
constexpr Unit kRates[] = {{"B/s", 1},    {"kB/s", 1e3},       {"MB/s", 1e6},
                           {"GB/s", 1e9}, {"Mbit/s", 1e6 / 8}, {"Gbit/s", 1e9 / 8}};
constexpr Unit kSizes[] = {{"", 1},          {"B", 1},       {"k", 1024},      {"K", 1024},
                           {"KiB", 1024},    {"M", 1 << 20}, {"MiB", 1 << 20}, {"G", 1 << 30},
                           {"GiB", 1 << 30}, {"kB", 1e3},    {"MB", 1e6},      {"GB", 1e9}};

// Sums of such latencies and transfers stay within the virtual clock of a simulated network.
constexpr double kMostLatency = 1e6, kLeastRate = 1, kMostRate = 1e15;  // seconds, bytes a second

bool read_rate(std::string_view text, double& seconds_per_byte) {
  double rate = 0;
  if (!read(text, kRates, rate) || rate < kLeastRate || rate > kMostRate) return false;
  seconds_per_byte = 1 / rate;
  return true;
}

}  // namespace

LinkCost link_of(std::string_view text) {
  LinkCost link = kDefaultLink;
  std::vector<std::string_view> parts;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  const bool good = parts.size() >= 2 && parts.size() <= 3 && read(parts[0], kTimes, link.alpha) &&
                    link.alpha <= kMostLatency && read_rate(parts[1], link.beta) &&
                    (parts.size() == 2 || read_rate(parts[2], link.gamma));
  if (!good) {
    throw ConfigError(
        "\"" + shortened(text) + "\" is not a link",
        {.operation = "config",
         .advice = "Write its latency and its rate: 25us,1GB/s (and, as a third, how "
                   "fast a rank adds: 25us,1GB/s,10GB/s). A latency is at most 1e6 s, "
                   "a rate 1 B/s to 1e6 GB/s."});
  }
  return link;
}

double seconds_of(std::string_view text) {
  double seconds = 0;
  if (!read(text, kTimes, seconds) || seconds > 1e9) {
    throw ConfigError("\"" + shortened(text) + "\" is not a time up to 1e9 seconds",
                      {.operation = "config", .advice = "Write 25us, 1.5ms or 2s."});
  }
  return seconds;
}

std::size_t bytes_of(std::string_view text) {
  double bytes = 0;
  if (!read(text, kSizes, bytes) || bytes > 1e15) {
    throw ConfigError("\"" + shortened(text) + "\" is not a size up to 1e15 bytes",
                      {.operation = "config", .advice = "Write bytes, or 64KiB, 1MiB, 2GiB."});
  }
  return static_cast<std::size_t>(bytes);
}

}  // namespace trireme::inline v0::plan
