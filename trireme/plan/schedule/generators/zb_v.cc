// ZB-V (Qi et al., "Pipeline Parallelism with Controllable Memory", arXiv 2405.15362, and arXiv
// 2401.10241v2, section 6): two chunks per rank in the shape of a V: rank r has stages r and
// 2p-1-r. Rank 0 has the last stage, and the two middle stages are on one rank, so the first
// gradient is at rank 0 as soon as the loss is known.
//
// Rank r: 2(p-r)-1 forward passes of the first chunk, r pairs of both chunks, p-r times F I W of
// the second. Then, while there are micro-batches, F I W of the first and of the second chunk in
// turn; at the end I before W. No bubble for equal times if M >= 2p-1, with the activation memory
// of 1F1B: 2p passes of half a rank's layers. Shorter batches leave the excess out.
#include <algorithm>

#include "trireme/plan/schedule/generators/schedules.h"

namespace trireme::inline v0::plan {
namespace {

// The next micro-batch of one chunk for each kind of pass.
struct Chunk {
  int stage = 0;
  int forwards = 0, inputs = 0, weights = 0;
};

class VOrder {
 public:
  VOrder(const ScheduleShape& shape, Order& order, int rank)
      : order_(order),
        down_{rank},
        up_{shape.stages - 1 - rank},
        ranks_(shape.ranks),
        rank_(rank),
        // The pattern needs at least this many.
        microbatches_(std::max(2 * shape.ranks - 1, shape.microbatches)) {}

  void write() {
    warm_up();
    steady();
    cool_down();
  }

 private:
  void warm_up() {
    for (int i = 0; i < 2 * (ranks_ - rank_) - 1; ++i) forward(down_);
    for (int i = 0; i < rank_; ++i) {
      forward(up_);
      forward(down_);
    }
    for (int i = 0; i < ranks_ - rank_; ++i) {
      forward(up_);
      input_and_weight(up_);
    }
  }
  void steady() {
    while (up_.forwards < down_.forwards || down_.forwards < microbatches_) {
      if (down_.forwards < microbatches_) forward(down_);
      input_and_weight(down_);
      forward(up_);
      input_and_weight(up_);
    }
  }
  void cool_down() {
    for (int i = 0; i < rank_; ++i) {
      input(down_);
      input(up_);
    }
    for (int i = 0; i < ranks_ - rank_; ++i) {
      input(down_);
      weight(down_);
    }
    while (up_.weights < up_.inputs) weight(up_);
    while (down_.weights < down_.inputs) weight(down_);
  }

  void forward(Chunk& chunk) { order_.forward(chunk.stage, chunk.forwards++); }
  void input(Chunk& chunk) { order_.input(chunk.stage, chunk.inputs++); }
  void weight(Chunk& chunk) { order_.weight(chunk.stage, chunk.weights++); }
  void input_and_weight(Chunk& chunk) {
    input(chunk);
    weight(chunk);
  }

  Order& order_;
  Chunk down_, up_;
  int ranks_, rank_, microbatches_;
};

Schedule zb_v(const ScheduleShape& shape) {
  return v_shaped_by(shape, [&](Order& order, int rank) { VOrder(shape, order, rank).write(); });
}

}  // namespace

ScheduleEntry zb_v_entry() {
  return {.name = "zb-v",
          .about = "two chunks as a V: no bubble for equal times, 1F1B's memory",
          .source = "arXiv 2405.15362",
          .bubble = "0, M ≥ 2p−1",
          .live = "p",
          .chunks = Chunks::Two,
          .make = zb_v,
          .most_passes = [](const ScheduleShape& shape, int) { return 2 * shape.ranks; }};
}

}  // namespace trireme::inline v0::plan
