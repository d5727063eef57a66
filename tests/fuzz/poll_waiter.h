// PollWaiter: one thread, no sleeping. A wait polls until nothing moves, then its deadline counts
// as passed: a fuzzer has no other source from which more could come.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "trireme/base/waiter.h"

namespace trireme::fuzz {

class PollWaiter final : public Waiter {
 public:
  TimePoint now() const noexcept override { return time_; }
  bool spins() const noexcept override { return false; }
  bool wait_until(const std::function<bool()>& ready, TimePoint deadline) override {
    while (!ready()) {
      bool moved = false;
      for (std::size_t i = 0; i < sources_.size(); ++i) moved |= sources_[i]->poll();
      if (moved) continue;
      time_ = std::max(time_, deadline);
      return ready();
    }
    return true;
  }
  void wake() noexcept override {}
  void run(std::function<void()> task) override { task(); }
  bool try_run(const std::function<void()>& task) override { return task(), true; }
  void run_at(TimePoint, std::function<void()>) override {}
  void add(std::shared_ptr<ProgressSource> source) override { sources_.push_back(source); }
  void remove(const ProgressSource* source) override {
    std::erase_if(sources_, [&](const auto& one) { return one.get() == source; });
  }

 private:
  TimePoint time_{};
  std::vector<std::shared_ptr<ProgressSource>> sources_;
};

/// Hands out a fuzzer's bytes.
class Bytes {
 public:
  Bytes(const std::uint8_t* data, std::size_t size) : data_(data), size_(size) {}
  bool empty() const { return size_ == 0; }
  std::uint8_t byte() { return take(1).empty() ? 0 : data_[-1]; }
  std::span<const std::byte> take(std::size_t count) {
    count = std::min(count, size_);
    const auto* const begin = reinterpret_cast<const std::byte*>(data_);
    data_ += count;
    size_ -= count;
    return {begin, count};
  }

 private:
  const std::uint8_t* data_;
  std::size_t size_;
};

}  // namespace trireme::fuzz
