// DualPipe-V (DeepSeek-AI, "DeepSeek-V3 Technical Report", arXiv 2412.19437, section 3.2.1; halved
// as in Sea AI Lab, "DualPipe could be better without the Dual", 2025, and the DualPipe
// repository's dualpipev.py). It is the V of ZB-V, but in the steady state a forward pass of one
// chunk and a backward pass of the other run as one action: the communication inside one (an expert
// layer's all-to-all) hides behind the computation of the other.
//
// Eight phases on rank r, as in that code: F of the first chunk 2(p-1-r) times; F of both r+1
// times; I W F of the second p-1-r times; the pairs; B of the second and a pair; B of both; the
// same with I instead of B from the middle on; W and I; W. Designed for M >= 2p; a shorter batch is
// a longer one with the excess left out. Bubble (p-1)(F+B pair + B - 3W); activations of 2p+1
// passes of half a rank's layers.
#include <algorithm>
#include <deque>
#include <utility>

#include "trireme/plan/schedule/generators/schedules.h"

namespace trireme::inline v0::plan {
namespace {

class DualOrder {
 public:
  DualOrder(const ScheduleShape& shape, Order& order, int rank)
      : order_(order),
        stages_{rank, shape.stages - 1 - rank},
        ranks_(shape.ranks),
        rank_(rank),
        microbatches_(std::max(2 * shape.ranks, shape.microbatches)) {}

  void write() {
    warm_up();
    steady();
    cool_down();
  }

 private:
  void warm_up() {
    const int behind = ranks_ - 1 - rank_;
    for (int i = 0; i < 2 * behind; ++i) forward(0);
    for (int i = 0; i < rank_ + 1; ++i) {
      forward(0);
      forward(1);
    }
    for (int i = 0; i < behind; ++i) {
      input(1);
      weight();
      forward(1);
    }
  }
  void steady() {
    for (int i = 0; i < microbatches_ - 2 * ranks_ + rank_ + 1; ++i) {
      // The last rank's first pair would wait for itself: its second chunk follows its first.
      if (i == 0 && rank_ == ranks_ - 1) {
        forward(0);
        backward(1);
      } else {
        pair(0, 1);
      }
      pair(1, 0);
    }
  }
  void cool_down() {
    const int behind = ranks_ - 1 - rank_;
    for (int i = 0; i < behind; ++i) {
      backward(1);
      pair(1, 0);
    }
    const int turns = rank_ + 1;
    bool split = false;
    for (int i = 0; i < turns; ++i) {
      if (i == turns / 2 && rank_ % 2 == 1) split = true;
      split ? input(1) : backward(1);
      if (i == turns / 2 && rank_ % 2 == 0) split = true;
      split ? input(0) : backward(0);
    }
    for (int i = 0; i < behind; ++i) {
      weight();
      input(0);
    }
    while (!put_off_.empty()) weight();
  }

  void forward(int chunk) { order_.forward(stages_[chunk], forwards_[chunk]++); }
  void backward(int chunk) { order_.backward(stages_[chunk], backwards_[chunk]++); }
  void input(int chunk) {
    put_off_.emplace_back(stages_[chunk], backwards_[chunk]);
    order_.input(stages_[chunk], backwards_[chunk]++);
  }
  void weight() {
    order_.weight(put_off_.front().first, put_off_.front().second);
    put_off_.pop_front();
  }
  void pair(int ahead, int back) {
    order_.pair(stages_[ahead], forwards_[ahead]++, stages_[back], backwards_[back]++);
  }

  Order& order_;
  int stages_[2];
  int forwards_[2] = {0, 0}, backwards_[2] = {0, 0};
  std::deque<std::pair<int, int>> put_off_;  // (stage, micro-batch) with a pending W
  int ranks_, rank_, microbatches_;
};

Schedule dualpipe_v(const ScheduleShape& shape) {
  return v_shaped_by(shape, [&](Order& order, int rank) { DualOrder(shape, order, rank).write(); });
}

}  // namespace

ScheduleEntry dualpipe_v_entry() {
  return {.name = "dualpipe-v",
          .about = "a V whose forward and backward passes run in pairs",
          .source = "arXiv 2412.19437",
          .bubble = "(p−1)/(3M+p−1), M ≥ 2p",
          .live = "p + ½",
          .chunks = Chunks::Two,
          .make = dualpipe_v,
          .most_passes = [](const ScheduleShape& shape, int) { return 2 * shape.ranks + 1; }};
}

}  // namespace trireme::inline v0::plan
