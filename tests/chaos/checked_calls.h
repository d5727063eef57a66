// Every collective once per step, in buffers of three sizes (inside the header, sent ahead of
// agreement, in pieces), in memory of the rank's own and in arenas; what it gave is checked.
#pragma once

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "trireme/comm/communicator.h"

namespace trireme::test {

class CheckedCalls {
 public:
  /// Collective. `what`: a collective, or an algorithm of all_reduce.
  CheckedCalls(comm::Communicator& group, std::string what)
      : group_(group), what_(std::move(what)), ranks_(static_cast<std::size_t>(group.size())) {
    const std::size_t most = kMost * ranks_;
    for (auto* arena : {&arena_in_, &arena_out_}) *arena = group.allocate(most * sizeof(float));
    for (auto* own : {&own_in_, &own_out_}) own->resize(most);
  }

  /// False if the call ended well and gave something else than it should.
  bool step(int step) {
    step_ = step;
    root_ = (step + step / 3) % group_.size();  // each with each size, in each memory
    piece_ = std::array<std::size_t, 3>{1, 167, kMost}[static_cast<std::size_t>(step) % 3];
    const std::size_t whole = piece_ * ranks_;
    const bool arena = step / 3 % 2 == 1;
    in_ = arena ? arena_in_.buffer(0, whole, DType::F32) : Buffer::of(std::span(own_in_));
    out_ = arena ? arena_out_.buffer(0, whole, DType::F32) : Buffer::of(std::span(own_out_));
    in_.count = out_.count = whole;
    for (std::size_t i = 0; i < whole; ++i) floats(in_)[i] = value(group_.rank(), i);
    std::fill_n(floats(out_), whole, -1.0f);
    return call();
  }

 private:
  static constexpr std::size_t kMost = 23'334;  // elements of a piece
  static float* floats(const Buffer& buffer) { return static_cast<float*>(buffer.data); }
  // Element `i` of a rank's input; whole numbers, so that their sums are exact.
  float value(int rank, std::size_t i) const {
    return static_cast<float>((rank * 37 + step_ * 11 + static_cast<int>(i % 97)) % 128);
  }
  float sum(std::size_t i) const {
    float all = 0;
    for (int rank = 0; rank < group_.size(); ++rank) all += value(rank, i);
    return all;
  }
  template <class Expected>
  bool all_are(const Buffer& buffer, const Expected& expected) const {
    for (std::size_t i = 0; i < buffer.count; ++i) {
      if (floats(buffer)[i] != expected(i)) return false;
    }
    return true;
  }

  bool call() {
    const std::size_t mine = static_cast<std::size_t>(group_.rank()) * piece_;
    const bool is_root = group_.rank() == root_;
    const Buffer in_piece = in_.slice(0, piece_), out_piece = out_.slice(0, piece_);
    const auto gathered = [this](std::size_t i) {
      return value(static_cast<int>(i / piece_), i % piece_);
    };
    const auto summed = [this](std::size_t i) { return sum(i); };
    if (what_ == "barrier") {
      group_.barrier().wait();
      return true;
    }
    if (what_ == "broadcast") {
      group_.broadcast(in_, root_).wait();
      return all_are(in_, [this](std::size_t i) { return value(root_, i); });
    }
    if (what_ == "all_gather") {
      group_.all_gather(in_piece, out_).wait();
      return all_are(out_, gathered);
    }
    if (what_ == "gather") {
      group_.gather(in_piece, out_, root_).wait();
      return !is_root || all_are(out_, gathered);
    }
    if (what_ == "scatter") {
      group_.scatter(in_, out_piece, root_).wait();
      return all_are(out_piece, [&](std::size_t i) { return value(root_, mine + i); });
    }
    if (what_ == "all_to_all") {
      group_.all_to_all(in_, out_).wait();
      return all_are(out_, [&](std::size_t i) {
        return value(static_cast<int>(i / piece_), mine + i % piece_);
      });
    }
    if (what_ == "reduce_scatter") {
      group_.reduce_scatter(in_, out_piece, ReduceOp::Sum).wait();
      return all_are(out_piece, [&](std::size_t i) { return sum(mine + i); });
    }
    if (what_ == "reduce") {
      group_.reduce(in_, out_, ReduceOp::Sum, root_).wait();
      return !is_root || all_are(out_, summed);
    }
    group_.all_reduce(in_, ReduceOp::Sum, {.algorithm = what_}).wait();
    return all_are(in_, summed);
  }

  comm::Communicator& group_;
  const std::string what_;
  const std::size_t ranks_;
  comm::Arena arena_in_, arena_out_;
  std::vector<float> own_in_, own_out_;
  Buffer in_, out_;
  int step_ = 0, root_ = 0;
  std::size_t piece_ = 0;
};

}  // namespace trireme::test
