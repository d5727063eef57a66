// ZB-H1 and ZB-H2 (Qi et al., "Zero Bubble Pipeline Parallelism", arXiv 2401.10241, sections 2.1
// and 2.2): 1F1B with a split backward pass. The previous stage waits only for I; W is put off and
// fills the end, where 1F1B has its second bubble.
//
// ZB-H1 delays W by r micro-batches on rank r. Bubble (p-1)(T_F + T_I - T_W) if M >= p, a third of
// 1F1B's for equal times. Every rank keeps the activations of 1F1B's worst rank: p-r micro-batches
// before I and r between I and W.
//
// ZB-H2 runs twice the forward passes in the warm-up, so that ranks have work until the first
// gradient arrives, and delays W by 2r. Each rank then works without a gap. Bubble (p-1)(T_F + T_I
// - 2T_W) if M >= 2p-1, which is none for equal times. Ranks begin and end one after another; in
// the paper (section 4) the optimizer step does not wait for all of them, but a step with a vote
// does. Activations of 2p-1 micro-batches on every rank: 2(p-r)-1 before I and 2r between I and W.
#include <algorithm>

#include "trireme/plan/schedule/generators/schedules.h"

namespace trireme::inline v0::plan {
namespace {

// Rank r runs times x (p-1-r) forward passes before its first I, and W of micro-batch m - times x r
// after I of m; the remaining W fill the end.
Schedule handcrafted(const ScheduleShape& shape, int times) {
  return looped_by(shape, [&](Order& order, int rank) {
    const int warm_up = times * (shape.ranks - 1 - rank), late = times * rank;
    for (int m = 0; m < std::min(warm_up, shape.microbatches); ++m) order.forward(rank, m);
    for (int m = 0; m < shape.microbatches; ++m) {
      order.forward(rank, m + warm_up).input(rank, m);
      if (m >= late) order.weight(rank, m - late);
    }
    for (int m = std::max(0, shape.microbatches - late); m < shape.microbatches; ++m)
      order.weight(rank, m);
  });
}

}  // namespace

ScheduleEntry zb_h1_entry() {
  return {.name = "zb-h1",
          .about = "1F1B with weight gradients put off: a third of the bubble, its memory",
          .source = "arXiv 2401.10241",
          .bubble = "(p−1)/(3M+p−1), M ≥ p",
          .live = "p",
          .make = [](const ScheduleShape& shape) { return handcrafted(shape, 1); },
          .most_passes = [](const ScheduleShape& shape, int) { return shape.ranks; }};
}

ScheduleEntry zb_h2_entry() {
  return {.name = "zb-h2",
          .about = "no bubble for equal times, at twice the activations",
          .source = "arXiv 2401.10241",
          .bubble = "0, M ≥ 2p−1",
          .live = "2p−1",
          .make = [](const ScheduleShape& shape) { return handcrafted(shape, 2); },
          .most_passes = [](const ScheduleShape& shape, int) { return 2 * shape.ranks - 1; }};
}

}  // namespace trireme::inline v0::plan
