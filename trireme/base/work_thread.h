// WorkThread: does tasks one after the other on a thread of its own, for callers that must not wait.
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
  /// Does what has been handed over.
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

  /// Returns when what has been handed over so far is done.
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
  std::deque<std::function<void()>> tasks_;  // an empty one ends the thread
  std::thread thread_;
};

}  // namespace trireme::inline v0
