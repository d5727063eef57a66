// StillWaiter: a waiter that never rests: it polls its only source, and only when the test asks for it.
#pragma once

#include <poll.h>

#include <functional>
#include <memory>
#include <utility>

#include "trireme/base/waiter.h"

namespace trireme::inline v0::net {

class StillWaiter final : public Waiter {
 public:
  TimePoint now() const noexcept override { return steady_now(); }
  bool spins() const noexcept override { return false; }
  bool wait_until(const std::function<bool()>& ready, TimePoint deadline) override {
    while (!ready() && now() < deadline)
      if (source) source->poll();
    return ready();
  }
  void wake() noexcept override {}
  void run(std::function<void()> task) override { task(); }
  bool try_run(const std::function<void()>& task) override { return task(), true; }
  void run_at(TimePoint, std::function<void()>) override {}
  void add(std::shared_ptr<ProgressSource> added) override { source = std::move(added); }
  void remove(const ProgressSource* removed) override {
    if (source.get() == removed) source = nullptr;
  }
  /// True if the source asks to be polled.
  bool called() const {
    pollfd one{source->descriptor(), POLLIN, 0};
    return ::poll(&one, 1, 0) > 0;
  }
  std::shared_ptr<ProgressSource> source;
};

}  // namespace trireme::inline v0::net
