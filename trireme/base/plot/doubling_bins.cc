#include "trireme/base/plot/doubling_bins.h"

#include "trireme/base/check.h"
#include "trireme/base/words.h"

namespace trireme::inline v0 {
namespace {

// The bin that begins at `first` ends before this.
std::int64_t end_of(std::int64_t first) { return first < 4 ? first + 1 : 2 * first; }

std::int64_t first_of(std::int64_t number) {
  std::int64_t first = 0;
  while (end_of(first) <= number) first = end_of(first);
  return first;
}

}  // namespace

std::vector<CountBin> doubling_bins(const std::map<std::int64_t, std::int64_t>& counts) {
  if (counts.empty()) return {};
  TRIREME_CHECK(counts.begin()->first >= 0);
  double all = 0;
  for (const auto& [number, count] : counts) all += static_cast<double>(count);
  std::vector<CountBin> bins;
  for (std::int64_t first = first_of(counts.begin()->first); first <= counts.rbegin()->first;
       first = end_of(first)) {
    CountBin bin{.label = std::to_string(first)};
    if (end_of(first) > first + 1) bin.label += "-" + std::to_string(end_of(first) - 1);
    for (auto one = counts.lower_bound(first); one != counts.lower_bound(end_of(first)); ++one)
      bin.count += one->second;
    bin.share = all > 0 ? static_cast<double>(bin.count) / all : 0;
    bins.push_back(std::move(bin));
  }
  return bins;
}

std::string percent_text(double share) {
  const double percent = 100 * share;
  return formatted(percent > 0 && percent < 0.95 ? "%.1f %%" : "%.0f %%", percent);
}

}  // namespace trireme::inline v0
