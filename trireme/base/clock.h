// Time in Trireme: points on a steady clock, and deadlines relative to "now".
//
// Code on floors 2-12 never reads steady_clock but asks its Waiter, whose clock is real in a job
// and virtual in the simulated network. Plain values; thread safe.
#pragma once

#include <algorithm>
#include <chrono>

namespace trireme::inline v0 {

using Duration = std::chrono::nanoseconds;
using TimePoint = std::chrono::steady_clock::time_point;

constexpr double to_seconds(Duration duration) noexcept {
  return std::chrono::duration<double>(duration).count();
}
/// The fraction of a nanosecond is dropped. Clamped to 4e9 s (126 years) on both sides, so that
/// adding the result to a TimePoint cannot overflow; NaN gives zero.
constexpr Duration from_seconds(double seconds) noexcept {
  constexpr double kMost = 4e9;
  if (seconds != seconds) return Duration::zero();
  return std::chrono::duration_cast<Duration>(
      std::chrono::duration<double>(std::clamp(seconds, -kMost, kMost)));
}

/// The process's steady clock. Only for floors 0-1, tests and programs without a Waiter.
TimePoint steady_now() noexcept;
/// Processor time that this thread has taken.
Duration thread_time() noexcept;

/// How long a wait may take, counted from its beginning. `job()` (the default) means the owner's
/// own timeout (key `timeout`, 30 s); `never()` waits without limit.
class Deadline {
 public:
  constexpr Deadline() noexcept = default;
  /// A negative duration counts as zero: the wait's time is over.
  static constexpr Deadline in(Duration duration) noexcept {
    return Deadline(std::max(duration, Duration::zero()));
  }
  static constexpr Deadline job() noexcept { return Deadline(); }
  static constexpr Deadline never() noexcept { return Deadline(Duration::max()); }

  constexpr bool is_job() const noexcept { return duration_ < Duration::zero(); }
  constexpr bool is_never() const noexcept { return duration_ == Duration::max(); }
  constexpr Duration duration() const noexcept { return duration_; }

  /// This deadline, or `fallback` if this is job().
  constexpr Deadline or_else(Deadline fallback) const noexcept {
    return is_job() ? fallback : *this;
  }
  /// The end of a wait that begins at `now`; TimePoint::max() for never() and job().
  TimePoint from(TimePoint now) const noexcept;

 private:
  explicit constexpr Deadline(Duration duration) noexcept : duration_(duration) {}
  Duration duration_{-1};
};

}  // namespace trireme::inline v0
