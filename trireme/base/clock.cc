#include "trireme/base/clock.h"

#include <time.h>

namespace trireme::inline v0 {

TimePoint steady_now() noexcept { return std::chrono::steady_clock::now(); }

Duration thread_time() noexcept {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return std::chrono::seconds(time.tv_sec) + Duration(time.tv_nsec);
}

TimePoint Deadline::from(TimePoint now) const noexcept {
  if (is_never() || is_job()) return TimePoint::max();
  if (duration_ > TimePoint::max() - now) return TimePoint::max();
  return now + duration_;
}

}  // namespace trireme::inline v0
