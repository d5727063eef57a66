// ZB-H1 (Qi et al., "Zero Bubble Pipeline Parallelism", arXiv 2401.10241, section 2.1): 1F1B with a
// split backward pass. The previous stage waits only for I; on rank r, W is delayed by r
// micro-batches and fills the end, where 1F1B has its second bubble.
//
// Bubble (p-1)(T_F + T_I - T_W) if M >= p, a third of 1F1B's for equal times. Every rank keeps the
// activations of 1F1B's worst rank: p-r micro-batches before I and r between I and W.
#include "trireme/plan/schedule/generators/zero_bubble.h"

namespace trireme::inline v0::plan {
namespace {

Schedule zb_h1(const ScheduleShape& shape) {
  return handcrafted(
      shape, [](int ranks, int rank) { return ranks - 1 - rank; },
      [](int, int rank) { return rank; });
}

}  // namespace

ScheduleEntry zb_h1_entry() {
  return {.name = "zb-h1",
          .about = "1F1B with weight gradients put off: a third of the bubble, its memory",
          .source = "arXiv 2401.10241",
          .bubble = "(p−1)/(3M+p−1), M ≥ p",
          .live = "p",
          .make = zb_h1,
          .most_passes = [](const ScheduleShape& shape, int) { return shape.ranks; }};
}

}  // namespace trireme::inline v0::plan
