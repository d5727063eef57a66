#include "trireme/strategy/arrival.h"

#include <algorithm>
#include <vector>

namespace trireme::inline v0::parallel {

Arrival last_of(std::span<const RankTime> times) {
  if (times.size() < 2) return {};
  const auto last = std::max_element(times.begin(), times.end(),
                                     [](const auto& a, const auto& b) { return a.busy < b.busy; });
  std::vector<Duration> others;
  for (auto at = times.begin(); at != times.end(); ++at)
    if (at != last) others.push_back(at->busy);
  const auto middle = others.begin() + static_cast<std::ptrdiff_t>((others.size() - 1) / 2);
  std::nth_element(others.begin(), middle, others.end());
  return {static_cast<int>(last - times.begin()), last->busy - *middle};
}

}  // namespace trireme::inline v0::parallel
