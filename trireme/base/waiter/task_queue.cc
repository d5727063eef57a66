#include "trireme/base/waiter/task_queue.h"

#include <utility>

namespace trireme::inline v0 {

void TaskQueue::push(std::function<void()> task) {
  std::lock_guard lock(mutex_);
  tasks_.push_back(std::move(task));
  num_tasks_.fetch_add(1);
}

bool TaskQueue::push_at(TimePoint time, std::function<void()> task) {
  std::lock_guard lock(mutex_);
  const auto at = timers_.emplace(time, std::move(task));
  next_timer_.store(timers_.begin()->first.time_since_epoch().count());
  return at == timers_.begin();
}

bool TaskQueue::run_tasks() {
  bool moved = false;
  while (num_tasks_.load() > 0) {
    std::function<void()> task;
    {
      std::lock_guard lock(mutex_);
      task = std::move(tasks_.front());
      tasks_.pop_front();
      num_tasks_.fetch_sub(1);
    }
    task();
    moved = true;
  }
  return moved;
}

bool TaskQueue::run_timers() {
  bool moved = false;
  while (next_timer() != TimePoint::max() && next_timer() <= steady_now()) {
    std::function<void()> task;
    {
      std::lock_guard lock(mutex_);
      task = std::move(timers_.begin()->second);
      timers_.erase(timers_.begin());
      next_timer_.store(timers_.empty() ? Duration::max().count()
                                        : timers_.begin()->first.time_since_epoch().count());
    }
    task();
    moved = true;
  }
  return moved;
}

}  // namespace trireme::inline v0
