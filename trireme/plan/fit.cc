#include "trireme/plan/fit.h"

#include <algorithm>
#include <cstdio>
#include <set>
#include <tuple>

namespace trireme {
inline namespace v0 {
namespace plan {
namespace {

constexpr double kAsFast = 1.03;  // times the fastest; trials differ by as much among themselves

std::string megabytes(std::int64_t bytes) {
  char text[32];
  const double value = static_cast<double>(bytes) / 1e6;
  std::snprintf(text, sizeof text, value < 99.95 ? "%.1f MB" : "%.0f MB", value);
  return text;
}

std::string seconds(double value) {
  char text[32];
  std::snprintf(text, sizeof text, value < 0.1 ? "%.3g ms" : "%.3g s",
                value < 0.1 ? value * 1e3 : value);
  return text;
}

std::string verdict(const FitCandidate& candidate, std::int64_t limit, bool chosen) {
  if (!candidate.impossible.empty()) return "cannot be: " + candidate.impossible;
  if (!candidate.failure.empty()) return "no: " + candidate.failure;
  if (!candidate.fits(limit)) return "no";
  return chosen ? "yes, chosen" : "yes";
}

}  // namespace

std::string FitCandidate::layout() const {
  return sync == "hybrid" ? "hybrid of " + std::to_string(shard) : sync;
}

std::vector<std::size_t> to_try(const std::vector<FitCandidate>& candidates, std::int64_t limit) {
  std::vector<std::size_t> indices;
  std::set<std::tuple<std::string, int, std::int64_t>> seen;
  std::vector<std::size_t> order(candidates.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return candidates[a].lanes > candidates[b].lanes;
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
  std::optional<std::size_t> chosen;
  std::optional<double> fastest;
  for (const FitCandidate& candidate : candidates)
    if (candidate.fits(limit) && candidate.step_seconds)
      fastest = std::min(fastest.value_or(*candidate.step_seconds), *candidate.step_seconds);
  for (std::size_t i = 0; i < candidates.size() && !chosen; ++i) {
    const FitCandidate& candidate = candidates[i];
    if (!candidate.fits(limit)) continue;
    if (fastest && (!candidate.step_seconds || *candidate.step_seconds > kAsFast * *fastest))
      continue;
    chosen = i;
  }
  return chosen;
}

std::string fit_table(const std::vector<FitCandidate>& candidates, std::int64_t limit,
                      std::optional<std::size_t> chosen) {
  const auto row = [](const std::string& layout, const std::string& lanes, const std::string& micro,
                      const std::string& predicted, const std::string& measured,
                      const std::string& step, const std::string& fits) {
    char text[256];
    std::snprintf(text, sizeof text, "  %-12s %5s %11s %10s %10s %9s  ", layout.c_str(),
                  lanes.c_str(), micro.c_str(), predicted.c_str(), measured.c_str(), step.c_str());
    return text + fits + "\n";
  };
  std::string table = row("layout", "lanes", "batch.micro", "predicted", "measured", "a step",
                          "fits into " + megabytes(limit) + " a rank");
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    const FitCandidate& one = candidates[i];
    table +=
        row(one.layout(), std::to_string(one.lanes), std::to_string(one.micro),
            one.impossible.empty() ? megabytes(one.predicted_bytes) : "-",
            one.measured_bytes ? megabytes(*one.measured_bytes) : "-",
            one.step_seconds ? seconds(*one.step_seconds) : "-", verdict(one, limit, chosen == i));
  }
  return table;
}

}  // namespace plan
}  // namespace v0
}  // namespace trireme
