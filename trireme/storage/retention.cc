#include "trireme/storage/retention.h"

#include <algorithm>
#include <cmath>
#include <set>

namespace trireme::inline v0::storage {

std::vector<std::int64_t> outdated(const std::vector<SavedCheckpoint>& saved,
                                   const Retention& retention) {
  std::set<std::int64_t> kept;
  for (std::size_t i = saved.size();
       i > 0 && kept.size() < static_cast<std::size_t>(retention.newest); --i)
    kept.insert(saved[i - 1].step);
  if (retention.hours > 0 && !saved.empty() && saved.back().seconds)
    for (const SavedCheckpoint& one : saved)
      if (one.seconds && *saved.back().seconds - *one.seconds <= retention.hours * 3600)
        kept.insert(one.step);
  std::vector<SavedCheckpoint> judged = saved;
  std::erase_if(judged, [](const auto& one) {
    return !one.validation_loss || !std::isfinite(*one.validation_loss);
  });
  std::stable_sort(judged.begin(), judged.end(), [](const auto& a, const auto& b) {
    return *a.validation_loss < *b.validation_loss;
  });
  for (std::size_t i = 0; i < judged.size() && i < static_cast<std::size_t>(retention.best); ++i)
    kept.insert(judged[i].step);
  std::vector<std::int64_t> steps;
  for (const SavedCheckpoint& one : saved)
    if (!kept.contains(one.step)) steps.push_back(one.step);
  return steps;
}

}  // namespace trireme::inline v0::storage
