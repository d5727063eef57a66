#include "trireme/cli/torch/fit/choice.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <set>
#include <tuple>

#include "trireme/base/words.h"
#include "trireme/sync/sync_plan.h"

namespace trireme::inline v0::cli {
namespace {

constexpr double kAsFast = 1.03;  // relative to the fastest; repeated trials differ by as much

// The time of the fastest candidate that fits, measured (`tried`) or predicted.
std::optional<double> fastest_of(const std::vector<FitCandidate>& candidates, std::int64_t limit,
                                 bool tried) {
  std::optional<double> fastest;
  for (const FitCandidate& one : candidates) {
    if (!one.fits(limit) || (tried && !one.step_seconds)) continue;
    const double seconds = tried ? *one.step_seconds : one.predicted_seconds;
    fastest = std::min(fastest.value_or(seconds), seconds);
  }
  return fastest;
}

std::string verdict(const FitCandidate& candidate, std::int64_t limit, bool chosen) {
  if (!candidate.impossible.empty()) return "cannot be: " + candidate.impossible;
  if (!candidate.failure.empty()) return "no: " + candidate.failure;
  if (!candidate.fits(limit)) return "no";
  return chosen ? "yes, chosen" : "yes";
}

}  // namespace

std::string FitCandidate::layout() const {
  return shard > 0 && parallel::shards_in_groups(sync) ? sync + " of " + std::to_string(shard)
                                                       : sync;
}

std::vector<std::size_t> to_try(const std::vector<FitCandidate>& candidates, std::int64_t limit) {
  std::vector<std::size_t> indices;
  std::set<std::tuple<std::string, int, std::int64_t>> seen;
  std::vector<std::size_t> order(candidates.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    const FitCandidate &one = candidates[a], &other = candidates[b];
    return std::tuple(one.predicted_seconds, -one.lanes) <
           std::tuple(other.predicted_seconds, -other.lanes);
  });
  for (const std::size_t i : order) {
    const FitCandidate& candidate = candidates[i];
    if (!candidate.fits(limit)) continue;
    if (seen.emplace(candidate.sync, candidate.shard, candidate.micro).second) indices.push_back(i);
  }
  std::sort(indices.begin(), indices.end());
  return indices;
}

std::optional<std::size_t> choose_fit(const std::vector<FitCandidate>& candidates,
                                      std::int64_t limit) {
  std::optional<double> fastest = fastest_of(candidates, limit, true);
  const bool tried = fastest.has_value();
  if (!tried) fastest = fastest_of(candidates, limit, false);
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    const FitCandidate& one = candidates[i];
    if (!one.fits(limit) || (tried && !one.step_seconds)) continue;
    if ((tried ? *one.step_seconds : one.predicted_seconds) <= kAsFast * *fastest) return i;
  }
  return std::nullopt;
}

std::string fit_table(const std::vector<FitCandidate>& candidates, std::int64_t limit,
                      std::optional<std::size_t> chosen) {
  const auto row = [](const std::array<std::string, 8>& cells, const std::string& fits) {
    char text[256];
    std::snprintf(text, sizeof text, "  %-12s %5s %-10s %11s %10s %10s %10s %10s  ",
                  cells[0].c_str(), cells[1].c_str(), cells[2].c_str(), cells[3].c_str(),
                  cells[4].c_str(), cells[5].c_str(), cells[6].c_str(), cells[7].c_str());
    return text + fits + "\n";
  };
  std::string table = row({"", "", "", "", "memory,", "", "a step,", ""}, "fits into");
  table += row({"layout", "lanes", "recompute", "batch.micro", "predicted", "measured", "predicted",
                "measured"},
               bytes_text(limit) + " a rank");
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    const FitCandidate& one = candidates[i];
    const bool possible = one.impossible.empty();
    table += row({one.layout(), std::to_string(one.lanes), one.recompute, std::to_string(one.micro),
                  possible ? bytes_text(one.predicted_bytes) : "-",
                  one.measured_bytes ? bytes_text(*one.measured_bytes) : "-",
                  one.predicted_seconds > 0 ? duration_text(one.predicted_seconds) : "-",
                  one.step_seconds ? duration_text(*one.step_seconds) : "-"},
                 verdict(one, limit, chosen == i));
  }
  return table;
}

}  // namespace trireme::inline v0::cli
