#include "trireme/train/report/straggler_log.h"

#include <algorithm>

#include "trireme/base/check.h"
#include "trireme/base/plot/doubling_bins.h"
#include "trireme/base/words.h"

namespace trireme::inline v0::train {

void StragglerLog::add(long rank, double behind, double step_seconds) {
  if (++steps_ == 0) return;
  const auto at = static_cast<std::size_t>(rank);
  TRIREME_CHECK(at < last_.size());
  ++last_[at];
  behind_[at] += behind;
  seconds_ += step_seconds;
}

observe::Event StragglerLog::event() const {
  return observe::Event("stragglers")
      .set("steps", static_cast<long>(steps_))
      .set("last_steps", last_)
      .set("behind_seconds", behind_)
      .set("seconds", seconds_);
}

std::string StragglerLog::text() const {
  const auto worst =
      static_cast<std::size_t>(std::max_element(behind_.begin(), behind_.end()) - behind_.begin());
  const auto steps = std::max<std::int64_t>(last_[worst], 1);
  return "rank " + std::to_string(worst) + " came last in " + grouped(last_[worst]) + " of " +
         counted(steps_, "step") + ", by " +
         duration_text(behind_[worst] / static_cast<double>(steps)) +
         " on average: " + percent_text(seconds_ > 0 ? behind_[worst] / seconds_ : 0) +
         " of the steps' time";
}

}  // namespace trireme::inline v0::train
