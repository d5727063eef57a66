// Team: the threads with which a server goes over its memory. The calling thread and the helpers
// that are awake take parts; the caller waits only for parts that a helper has begun.
//
// Small ranges are not worth waking anybody and stay on the calling thread. One caller at a time.
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "trireme/base/spread.h"
#include "trireme/base/waiter.h"

namespace trireme::inline v0::ps {

class Team {
 public:
  /// `threads`: including the calling one.
  Team(std::shared_ptr<Waiter> waiter, int threads);
  ~Team();
  Team(const Team&) = delete;

  /// As Spread.
  void run(std::size_t count, const std::function<void(std::size_t, std::size_t)>& part);
  /// Refers to this object.
  Spread spread() {
    return [this](std::size_t count, const auto& part) { run(count, part); };
  }
  /// Copies memory that does not overlap. `reads`: another process reads it later.
  void copy(void* to, const void* from, std::size_t bytes, bool reads = false);

 private:
  void help();
  void take_parts();

  const std::shared_ptr<Waiter> waiter_;
  // The present range. Written only while it is closed and no helper is inside.
  const std::function<void(std::size_t, std::size_t)>* part_ = nullptr;
  std::atomic<std::size_t> count_{0}, next_{0};
  std::atomic<bool> open_{false}, stopped_{false};
  std::atomic<int> inside_{0};  // helpers
  std::vector<std::jthread> helpers_;
};

}  // namespace trireme::inline v0::ps
