// Sweep: several updates that go over one memory together. The memory is a ring of stretches. An
// update joins at the next stretch, and is complete when it has gone round once:
//
//     stretch        0   1   2   3   0   1   2   3   0
//     update A       A   A   A   A
//     update B               B   B   B   B               begun while A was at 2
//     update C                       C   C   C   C
//
// Each element gets the updates in the order in which they began, so the bits are those of one
// update after the other. But a stretch is brought into the caches once for all n updates under
// way, so weights and state go through memory once and not n times. Not thread safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <vector>

#include "trireme/base/spread.h"

namespace trireme::inline v0::ps {

class Sweep {
 public:
  /// Updates elements [begin, end) of a slice; called from the threads of `spread`.
  using Update = std::function<void(std::size_t slice, std::size_t begin, std::size_t end)>;
  /// Elements of a stretch, and of the blocks that all updates go over before the next one.
  static constexpr std::size_t kStretch = std::size_t{1} << 21, kBlock = 4096;

  /// `sizes`: elements of each slice. `stretch`: a multiple of kBlock.
  Sweep(const std::vector<std::size_t>& sizes, Spread spread, std::size_t stretch = kStretch);

  /// Updates have the numbers 1, 2, 3, ...
  void begin(Update update) { updates_.push_back({std::move(update), stretches_.size()}); }
  /// The number of the last update that has begun.
  std::uint64_t begun() const noexcept { return completed_ + updates_.size(); }
  /// The number of the last update that is complete. They are complete in their order.
  std::uint64_t completed() const noexcept { return completed_; }
  bool under_way() const noexcept { return !updates_.empty(); }
  /// Goes over the next stretch.
  void advance();
  void finish() {
    while (under_way()) advance();
  }

 private:
  struct Piece {
    std::size_t slice, begin, end;
  };
  struct UnderWay {
    Update update;
    std::size_t left;  // stretches
  };

  const Spread spread_;
  std::vector<std::vector<Piece>> stretches_;
  std::deque<UnderWay> updates_;
  std::size_t at_ = 0;
  std::uint64_t completed_ = 0;
};

}  // namespace trireme::inline v0::ps
