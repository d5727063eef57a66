// GPipe (Huang et al., "GPipe: Efficient Training of Giant Neural Networks using Pipeline
// Parallelism", arXiv 1811.06965): all micro-batches forward, then all of them back.
//
//   0: F0.0 F0.1 F0.2 .... .... B0.0 B0.1 B0.2
//   1: .... F1.0 F1.1 F1.2 B1.0 B1.1 B1.2 ....
//
// Bubble (p-1)/(M+p-1). Activations of all M micro-batches; with recomputation (as in the paper),
// their inputs and the activations of one. Backward runs in ascending order, not in the paper's
// descending one, in the same time: then the tree sum has only ceil(log2 M) open sums. This is
// breadth-first with one chunk a rank.
#include "trireme/plan/schedule/generators/schedules.h"

namespace trireme::inline v0::plan {

ScheduleEntry gpipe_entry() {
  return {.name = "gpipe",
          .about = "all micro-batches forward, then all of them back",
          .source = "arXiv 1811.06965",
          .bubble = "(p−1)/(M+p−1)",
          .live = "M",
          .make = breadth_first};
}

}  // namespace trireme::inline v0::plan
