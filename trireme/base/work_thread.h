// WorkThread: runs tasks in order on its own thread, for callers that must not wait. A task must
// not throw.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <future>
#include <mutex>
#include <thread>
#include <utility>

namespace trireme::inline v0 {

class WorkThread {
 public:
  WorkThread() : thread_([this] { run(); }) {}
  /// Runs the tasks that were posted.
  ~WorkThread() {
    post(nullptr);
    thread_.join();
  }
  WorkThread(const WorkThread&) = delete;

  /// Thread safe.
  void post(std::function<void()> task) {
    std::lock_guard lock(mutex_);
    tasks_.push_back(std::move(task));
    arrived_.notify_one();
  }

  /// Returns when all tasks posted so far have run.
  void drain() {
    std::promise<void> done;
    post([&done] { done.set_value(); });
    done.get_future().wait();
  }

 private:
  void run() {
    for (;;) {
      std::function<void()> task;
      {
        std::unique_lock lock(mutex_);
        arrived_.wait(lock, [this] { return !tasks_.empty(); });
        task = std::move(tasks_.front());
        tasks_.pop_front();
      }
      if (!task) return;
      task();
    }
  }

  std::mutex mutex_;
  std::condition_variable arrived_;
  std::deque<std::function<void()>> tasks_;  // an empty task ends the thread
  std::thread thread_;
};

}  // namespace trireme::inline v0
