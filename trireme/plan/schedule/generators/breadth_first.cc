// Looped breadth-first (Lamy-Poirier, "Breadth-First Pipeline Parallelism", arXiv 2211.05953):
// chunks as in interleaved 1F1B, but all micro-batches go through a chunk before the next chunk
// begins.
//
//   0: F0.0 F0.1 F2.0 F2.1 .... .... B2.0 B2.1 B0.0 B0.1
//   1: .... F1.0 F1.1 F3.0 F3.1 B3.0 B3.1 B1.0 B1.1 ....      (passes drawn as if of one length)
//
// Bubble (p-1)/(vM+p-1) for M >= p; activations of all vM passes, like GPipe. Gathers a chunk's
// weights and reduces its gradients once per step, not per micro-batch: made for sharded weights.
#include "trireme/plan/schedule/generators/schedules.h"

namespace trireme::inline v0::plan {

Schedule breadth_first(const ScheduleShape& shape) {
  return looped_by(shape, [&](Order& order, int rank) {
    for (int stage = rank; stage < shape.stages; stage += shape.ranks)
      for (int m = 0; m < shape.microbatches; ++m) order.forward(stage, m);
    for (int stage = shape.stages - shape.ranks + rank; stage >= 0; stage -= shape.ranks)
      for (int m = 0; m < shape.microbatches; ++m) order.backward(stage, m);
  });
}

ScheduleEntry breadth_first_entry() {
  return {.name = "breadth-first",
          .about = "all micro-batches through a chunk before the next chunk",
          .source = "arXiv 2211.05953",
          .bubble = "(p−1)/(vM+p−1), M ≥ p",
          .live = "M",
          .chunks = Chunks::Any,
          .make = breadth_first};
}

}  // namespace trireme::inline v0::plan
