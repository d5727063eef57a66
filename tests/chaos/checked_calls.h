// CheckedCalls: calls a collective once per step and checks its result. Buffers have three sizes
// (inside the header, sent ahead of agreement, in pieces) and lie in the rank's memory or in
// arenas.
#pragma once

#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "trireme/base/check.h"
#include "trireme/comm/communicator.h"
#include "trireme/comm/rounds/registry.h"

namespace trireme::test {

class CheckedCalls {
 public:
  /// Collective. `what`: a collective ("broadcast"), one with its algorithm ("broadcast.chain"), or
  /// an algorithm of all_reduce.
  CheckedCalls(comm::Communicator& group, const std::string& what)
      : group_(group), ranks_(static_cast<std::size_t>(group.size())) {
    const std::size_t dot = std::min(what.find('.'), what.size());
    const auto found = calls().find(what.substr(0, dot));
    call_ = found == calls().end() ? &CheckedCalls::all_reduce : found->second;
    algorithm_ = found == calls().end() ? what : what.substr(std::min(dot + 1, what.size()));
    const std::size_t most = kMost * ranks_;
    for (auto* arena : {&arena_in_, &arena_out_}) *arena = group.allocate(most * sizeof(float));
    for (auto* own : {&own_in_, &own_out_}) own->resize(most);
  }

  /// Returns false if the call succeeded with a wrong result.
  bool step(int step) {
    step_ = step;
    root_ = (step + step / 3 + step / 18) % group_.size();  // every root has every size and memory
    piece_ = std::array<std::size_t, 3>{1, 167, kMost}[static_cast<std::size_t>(step) % 3];
    whole_ = piece_ * ranks_;
    mine_ = static_cast<std::size_t>(group_.rank()) * piece_;
    is_root_ = group_.rank() == root_;
    const bool arena = step / 3 % 2 == 1;
    in_ = arena ? arena_in_.buffer(0, whole_, DType::F32) : Buffer::of(std::span(own_in_));
    out_ = arena ? arena_out_.buffer(0, whole_, DType::F32) : Buffer::of(std::span(own_out_));
    in_.count = out_.count = whole_;
    for (std::size_t i = 0; i < whole_; ++i) floats(in_)[i] = value(group_.rank(), i);
    std::fill_n(floats(out_), whole_, -1.0f);
    in_piece_ = in_.slice(0, piece_);
    out_piece_ = out_.slice(0, piece_);
    return (this->*call_)();
  }

 private:
  using Call = bool (CheckedCalls::*)();
  static const std::map<std::string, Call>& calls() {
    static const std::map<std::string, Call> all = {
        {"barrier", &CheckedCalls::barrier},
        {"broadcast", &CheckedCalls::broadcast},
        {"all_gather", &CheckedCalls::all_gather},
        {"gather", &CheckedCalls::gather},
        {"scatter", &CheckedCalls::scatter},
        {"all_to_all", &CheckedCalls::all_to_all},
        {"all_to_all_v", &CheckedCalls::all_to_all_v},
        {"reduce_scatter", &CheckedCalls::reduce_scatter},
        {"reduce", &CheckedCalls::reduce},
        {"all_reduce_many", &CheckedCalls::all_reduce_many},
        {"send_recv", &CheckedCalls::send_recv}};
    return all;
  }
  static constexpr std::size_t kMost = 23'334;  // elements of a piece

  static float* floats(const Buffer& buffer) { return static_cast<float*>(buffer.data); }
  // Element `i` of a rank's input; integers, so that sums are exact.
  float value(int rank, std::size_t i) const {
    return static_cast<float>((rank * 37 + step_ * 11 + static_cast<int>(i % 97)) % 128);
  }
  float sum(std::size_t i) const {
    float all = 0;
    for (int rank = 0; rank < group_.size(); ++rank) all += value(rank, i);
    return all;
  }
  float gathered(std::size_t i) const { return value(static_cast<int>(i / piece_), i % piece_); }
  float exchanged(std::size_t i) const {
    return value(static_cast<int>(i / piece_), mine_ + i % piece_);
  }
  template <class Expected>
  static bool all_are(const float* values, std::size_t count, const Expected& expected) {
    for (std::size_t i = 0; i < count; ++i) {
      if (values[i] != expected(i)) return false;
    }
    return true;
  }
  template <class Expected>
  static bool all_are(const Buffer& buffer, const Expected& expected) {
    return all_are(floats(buffer), buffer.count, expected);
  }
  comm::OpOptions options() const { return {.algorithm = algorithm_}; }

  bool barrier() {
    group_.barrier().wait();
    return true;
  }
  bool broadcast() {
    group_.broadcast(in_, root_, options()).wait();
    return all_are(in_, [this](std::size_t i) { return value(root_, i); });
  }
  bool all_gather() {
    group_.all_gather(in_piece_, out_, options()).wait();
    return all_are(out_, [this](std::size_t i) { return gathered(i); });
  }
  bool gather() {
    group_.gather(in_piece_, out_, root_, options()).wait();
    return !is_root_ || all_are(out_, [this](std::size_t i) { return gathered(i); });
  }
  bool scatter() {
    group_.scatter(in_, out_piece_, root_, options()).wait();
    return all_are(out_piece_, [this](std::size_t i) { return value(root_, mine_ + i); });
  }
  bool all_to_all() {
    group_.all_to_all(in_, out_, options()).wait();
    return all_are(out_, [this](std::size_t i) { return exchanged(i); });
  }
  bool all_to_all_v() {
    const std::vector<std::size_t> counts(ranks_, piece_);
    group_.all_to_all_v(in_, out_, counts, counts, options()).wait();
    return all_are(out_, [this](std::size_t i) { return exchanged(i); });
  }
  bool reduce_scatter() {
    group_.reduce_scatter(in_, out_piece_, ReduceOp::Sum, options()).wait();
    return all_are(out_piece_, [this](std::size_t i) { return sum(mine_ + i); });
  }
  bool reduce() {
    group_.reduce(in_, out_, ReduceOp::Sum, root_, options()).wait();
    return !is_root_ || all_are(out_, [this](std::size_t i) { return sum(i); });
  }
  bool all_reduce() {
    group_.all_reduce(in_, ReduceOp::Sum, options()).wait();
    return all_are(in_, [this](std::size_t i) { return sum(i); });
  }
  bool all_reduce_many() {  // small buffers are combined
    std::vector<Buffer> parts;
    const std::size_t cut = std::max<std::size_t>(1, piece_ / 3);
    for (std::size_t begin = 0; begin < whole_; begin += cut) {
      parts.push_back(in_.slice(begin, std::min(cut, whole_ - begin)));
    }
    group_.all_reduce_many(parts, ReduceOp::Sum, options()).wait();
    return all_are(in_, [this](std::size_t i) { return sum(i); });
  }
  bool send_recv() {  // around the ring
    const int size = group_.size(), before = (group_.rank() + size - 1) % size;
    const Work received = group_.recv(out_, before),
               sent = group_.send(in_, (group_.rank() + 1) % size);
    received.wait();
    sent.wait();
    return all_are(out_, [&](std::size_t i) { return value(before, i); });
  }

  comm::Communicator& group_;
  const std::size_t ranks_;
  Call call_;
  std::string algorithm_;
  comm::Arena arena_in_, arena_out_;
  std::vector<float> own_in_, own_out_;
  Buffer in_, out_, in_piece_, out_piece_;
  int step_ = 0, root_ = 0;
  std::size_t piece_ = 0, whole_ = 0, mine_ = 0;
  bool is_root_ = false;
};

/// Values for CheckedCalls.
inline std::vector<std::string> all_reduces() {
  std::vector<std::string> names;
  for (const auto* entry : comm::algorithms_of(comm::OpKind::AllReduce))
    names.push_back(entry->name);
  return names;
}

/// Collectives whose ranks access one another's memory directly if the transport allows it.
inline std::vector<std::string> movers() {
  return {"broadcast", "all_gather", "reduce_scatter", "reduce", "gather", "scatter", "all_to_all"};
}

/// Collectives that read memory that is not mapped; the other movers stage it.
inline std::vector<std::string> readers() { return {"reduce_scatter", "reduce", "all_to_all_v"}; }

/// All algorithms of the collectives other than all_reduce, and operations built from several.
inline std::vector<std::string> other_rounds() {
  std::vector<std::string> names = {"all_reduce_many", "all_to_all_v", "send_recv", "barrier"};
  for (int kind = 1; kind <= static_cast<int>(comm::OpKind::AllToAll); ++kind) {
    const auto one = static_cast<comm::OpKind>(kind);
    for (const auto* entry : comm::algorithms_of(one))
      names.push_back(std::string(comm::name_of(one)) + "." + entry->name);
  }
  return names;
}

}  // namespace trireme::test
