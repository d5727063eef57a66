// Time as Trireme sees it: points on a steady clock and deadlines relative to "now".
//
// Floors 2-8 never read std::chrono::steady_clock themselves; they ask their Waiter, which is
// real (futex, epoll) in a job and virtual in the simulated network. Values, thread safe.
#pragma once

#include <chrono>

namespace trireme {
inline namespace v0 {

using Duration = std::chrono::nanoseconds;
using TimePoint = std::chrono::steady_clock::time_point;

/// The process's real steady clock. Only for floors 0-1, tests and programs without a Waiter.
TimePoint steady_now() noexcept;

/// How long a wait may take, counted from the moment the wait begins. `job()` (the default) means
/// the owner's own timeout (key `timeout`, 30 s); `never()` waits for ever.
class Deadline {
 public:
  constexpr Deadline() noexcept = default;
  static constexpr Deadline in(Duration duration) noexcept { return Deadline(duration); }
  static constexpr Deadline job() noexcept { return Deadline(); }
  static constexpr Deadline never() noexcept { return Deadline(Duration::max()); }

  constexpr bool is_job() const noexcept { return duration_ < Duration::zero(); }
  constexpr bool is_never() const noexcept { return duration_ == Duration::max(); }
  constexpr Duration duration() const noexcept { return duration_; }

  /// This deadline, or `fallback` where it is the job's.
  constexpr Deadline or_else(Deadline fallback) const noexcept {
    return is_job() ? fallback : *this;
  }
  /// The point in time, given the waiter's now(); TimePoint::max() for never (and for job()).
  TimePoint from(TimePoint now) const noexcept;

 private:
  explicit constexpr Deadline(Duration duration) noexcept : duration_(duration) {}
  Duration duration_{-1};
};

}  // namespace v0
}  // namespace trireme
