// 1F1B (Narayanan et al., "PipeDream", SOSP 2019; synchronous as in Fan et al., "DAPPLE", arXiv
// 2007.01045, and Megatron-LM): rank r runs p-1-r forward passes, then alternates one forward and
// one backward, so that a micro-batch goes back as early as possible.
//
//   0: F0.0 F0.1 .... B0.0 F0.2 B0.1 .... B0.2
//   1: .... F1.0 B1.0 F1.1 B1.1 F1.2 B1.2 ....
//
// Bubble (p-1)/(M+p-1), like GPipe, but activations of only min(M, p-r) micro-batches.
#include <algorithm>

#include "trireme/plan/schedule/generators/schedules.h"

namespace trireme::inline v0::plan {

Schedule one_f_one_b(const ScheduleShape& shape) {
  return looped_by(shape, [&](Order& order, int rank) {
    const int ahead = shape.ranks - 1 - rank;
    for (int m = 0; m < std::min(ahead, shape.microbatches); ++m) order.forward(rank, m);
    for (int m = 0; m < shape.microbatches; ++m) order.forward(rank, m + ahead).backward(rank, m);
  });
}

ScheduleEntry one_f_one_b_entry() {
  return {.name = "1f1b",
          .about = "one forward, one backward: few live activations",
          .source = "arXiv 2007.01045",
          .bubble = "(p−1)/(M+p−1)",
          .live = "p−r on rank r",
          .make = one_f_one_b,
          .most_passes = [](const ScheduleShape& shape, int rank) { return shape.ranks - rank; }};
}

}  // namespace trireme::inline v0::plan
