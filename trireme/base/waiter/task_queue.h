// TaskQueue: a RealWaiter's tasks and timers. Any thread adds; only the progress context runs them.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <map>
#include <mutex>

#include "trireme/base/waiter.h"

namespace trireme::inline v0 {

class TaskQueue {
 public:
  void push(std::function<void()> task);
  /// True if it is now the next timer to run.
  bool push_at(TimePoint time, std::function<void()> task);
  bool empty() const noexcept { return num_tasks_.load() == 0; }
  /// TimePoint::max() without timers.
  TimePoint next_timer() const noexcept { return TimePoint(Duration(next_timer_.load())); }
  /// Runs all tasks, and the timers whose time has come; true if there were any.
  bool run() {
    const bool moved = run_tasks();
    return run_timers() || moved;
  }

 private:
  bool run_tasks();
  bool run_timers();

  std::mutex mutex_;
  std::deque<std::function<void()>> tasks_;
  std::atomic<std::size_t> num_tasks_{0};
  std::multimap<TimePoint, std::function<void()>> timers_;
  std::atomic<Duration::rep> next_timer_{Duration::max().count()};
};

}  // namespace trireme::inline v0
