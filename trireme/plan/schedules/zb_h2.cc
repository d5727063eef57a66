// ZB-H2 (Qi et al., "Zero Bubble Pipeline Parallelism", arXiv 2401.10241, section 2.2): as ZB-H1,
// with twice the forward passes in the warm-up, so that ranks have work until the first gradient
// comes, and W put off by 2r: every rank's work is then one block without a hole.
//
// Bubble (p-1)(T_F + T_I - 2T_W), none for equal times, where M >= 2p-1; ranks begin and end one
// after the other, so the optimizer step must not wait for all of them (section 4 of the paper;
// what a step with a vote costs here is the parallelogram's corner). Activations of 2p-1
// micro-batches on every rank: 2(p-r)-1 before I and 2r between I and W.
#include "trireme/plan/schedules/zero_bubble.h"

namespace trireme {
inline namespace v0 {
namespace plan {

Schedule zb_h2(const ScheduleShape& shape) {
  return handcrafted(
      shape, [](int ranks, int rank) { return 2 * (ranks - 1 - rank); },
      [](int, int rank) { return 2 * rank; });
}

}  // namespace plan
}  // namespace v0
}  // namespace trireme
