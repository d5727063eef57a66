// RestartDelay: how long a process that has ended waits before it is started again. One that ended soon after
// it was started again waits, and twice as long each time that it does so again.
#pragma once

#include <algorithm>
#include <optional>

#include "trireme/base/clock.h"

namespace trireme::inline v0::launch {

struct RestartPace {
  Duration soon = std::chrono::seconds(20), first = std::chrono::seconds(1);
};

class RestartDelay {
 public:
  /// The process has ended, and is started again after the result.
  Duration next(TimePoint now, const RestartPace& pace) {
    constexpr int kMostDoublings = 6;
    soon_ = started_ && now - *started_ < pace.soon ? soon_ + 1 : 0;
    const Duration delay =
        soon_ == 0 ? Duration::zero() : pace.first * (1 << std::min(soon_ - 1, kMostDoublings));
    started_ = now + delay;
    return delay;
  }
  /// It is started for another reason.
  void start(TimePoint now) { started_ = now; }

 private:
  std::optional<TimePoint> started_;  // again
  int soon_ = 0;                      // times in a row that it ended soon after its start
};

}  // namespace trireme::inline v0::launch
