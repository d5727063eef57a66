// Naive: one micro-batch in the pipeline at a time, so one of p ranks works and the others wait.
//
//   0: F0.0 .... .... B0.0 F0.1 .... .... B0.1
//   1: .... F1.0 B1.0 .... .... F1.1 B1.1 ....
//
// Half of the layers on another device give this. Bubble 1 - 1/p; activations of one micro-batch.
#include "trireme/plan/schedule/generators/schedules.h"

namespace trireme::inline v0::plan {
namespace {

Schedule naive(const ScheduleShape& shape) {
  return looped_by(shape, [&](Order& order, int rank) {
    for (int m = 0; m < shape.microbatches; ++m) order.forward(rank, m).backward(rank, m);
  });
}

}  // namespace

ScheduleEntry naive_entry() {
  return {.name = "naive",
          .about = "one micro-batch in the pipeline at a time",
          .bubble = "1 − 1/p",
          .live = "1",
          .make = naive,
          .most_passes = [](const ScheduleShape&, int) { return 1; }};
}

}  // namespace trireme::inline v0::plan
