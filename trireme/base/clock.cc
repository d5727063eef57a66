#include "trireme/base/clock.h"

namespace trireme::inline v0 {

TimePoint steady_now() noexcept { return std::chrono::steady_clock::now(); }

TimePoint Deadline::from(TimePoint now) const noexcept {
  if (is_never() || is_job()) return TimePoint::max();
  if (duration_ > TimePoint::max() - now) return TimePoint::max();
  return now + duration_;
}

}  // namespace trireme::inline v0
