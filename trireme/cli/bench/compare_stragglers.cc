// The ranks that came last, of a run that trireme compare shows.
#include <algorithm>

#include "trireme/base/words.h"
#include "trireme/cli/bench/compare.h"

namespace trireme::inline v0::cli {

std::string straggler_text(const ComparedRun& run) {
  if (run.late.empty()) return {};
  std::int64_t steps = 0;
  for (const auto& [rank, late] : run.late) steps += late.steps;
  const auto& [rank, late] = *std::max_element(
      run.late.begin(), run.late.end(),
      [](const auto& a, const auto& b) { return a.second.seconds < b.second.seconds; });
  return "rank " + std::to_string(rank) + ", in " + grouped(late.steps) + " of " +
         counted(steps, "step") + ", by " +
         duration_text(late.seconds / static_cast<double>(late.steps));
}

}  // namespace trireme::inline v0::cli
