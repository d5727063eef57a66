// RestartDelay: how long a process waits before its restart. Zero, unless it ended soon after the
// restart before; then `first`, and twice as long each further time (64 times at most).
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
  /// The process has ended. Returns the delay until its restart.
  Duration next(TimePoint now, const RestartPace& pace) {
    constexpr int kMostDoublings = 6;
    soon_ = started_ && now - *started_ < pace.soon ? soon_ + 1 : 0;
    const Duration delay =
        soon_ == 0 ? Duration::zero() : pace.first * (1 << std::min(soon_ - 1, kMostDoublings));
    started_ = now + delay;
    return delay;
  }
  /// The process is started for another reason.
  void start(TimePoint now) { started_ = now; }

 private:
  std::optional<TimePoint> started_;  // the latest restart
  int soon_ = 0;                      // times in a row that it ended soon after its start
};

}  // namespace trireme::inline v0::launch
