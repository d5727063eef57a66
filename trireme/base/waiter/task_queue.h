// TaskQueue: a RealWaiter's tasks and timers. Any thread adds; only the progress context runs them.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <utility>

#include "trireme/base/waiter.h"

namespace trireme::inline v0 {

class TaskQueue {
 public:
  void push(std::function<void()> task) {
    std::lock_guard lock(mutex_);
    tasks_.push_back(std::move(task));
    num_tasks_.fetch_add(1);
  }
  /// True if it is now the next timer to run.
  bool push_at(TimePoint time, std::function<void()> task) {
    std::lock_guard lock(mutex_);
    const auto at = timers_.emplace(time, std::move(task));
    note_next_timer();
    return at == timers_.begin();
  }
  bool empty() const noexcept { return num_tasks_.load() == 0; }
  /// TimePoint::max() without timers.
  TimePoint next_timer() const noexcept { return TimePoint(Duration(next_timer_.load())); }
  /// Runs all tasks, and the timers whose time has come; true if there were any.
  bool run() {
    bool moved = false;
    for (; num_tasks_.load() > 0; moved = true) take_task()();
    for (; next_timer() != TimePoint::max() && next_timer() <= steady_now(); moved = true)
      take_timer()();
    return moved;
  }

 private:
  std::function<void()> take_task() {
    std::lock_guard lock(mutex_);
    auto task = std::move(tasks_.front());
    tasks_.pop_front();
    num_tasks_.fetch_sub(1);
    return task;
  }
  std::function<void()> take_timer() {
    std::lock_guard lock(mutex_);
    auto task = std::move(timers_.begin()->second);
    timers_.erase(timers_.begin());
    note_next_timer();
    return task;
  }
  void note_next_timer() {
    next_timer_.store(timers_.empty() ? Duration::max().count()
                                      : timers_.begin()->first.time_since_epoch().count());
  }

  std::mutex mutex_;
  std::deque<std::function<void()>> tasks_;
  std::atomic<std::size_t> num_tasks_{0};
  std::multimap<TimePoint, std::function<void()>> timers_;
  std::atomic<Duration::rep> next_timer_{Duration::max().count()};
};

}  // namespace trireme::inline v0
