// ZB-H2 (Qi et al., "Zero Bubble Pipeline Parallelism", arXiv 2401.10241, section 2.2): like ZB-H1
// with twice the forward passes in the warm-up, so that ranks have work until the first gradient
// arrives, and W delayed by 2r. Each rank then works without a gap.
//
// Bubble (p-1)(T_F + T_I - 2T_W) if M >= 2p-1, which is none for equal times. Ranks begin and end
// one after another, so the optimizer step must not wait for all of them (section 4 of the paper);
// a step with a vote does, and waits for the last rank. Activations of 2p-1 micro-batches on every
// rank: 2(p-r)-1 before I and 2r between I and W.
#include "trireme/plan/schedule/generators/zero_bubble.h"

namespace trireme::inline v0::plan {
namespace {

Schedule zb_h2(const ScheduleShape& shape) {
  return handcrafted(
      shape, [](int ranks, int rank) { return 2 * (ranks - 1 - rank); },
      [](int, int rank) { return 2 * rank; });
}

}  // namespace

ScheduleEntry zb_h2_entry() {
  return {.name = "zb-h2",
          .about = "no bubble for equal times, at twice the activations",
          .source = "arXiv 2401.10241",
          .bubble = "0, M ≥ 2p−1",
          .live = "2p−1",
          .make = zb_h2,
          .most_passes = [](const ScheduleShape& shape, int) { return 2 * shape.ranks - 1; }};
}

}  // namespace trireme::inline v0::plan
