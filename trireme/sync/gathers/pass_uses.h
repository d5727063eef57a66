// The block uses in a rank's passes through its pipeline stages, in the order of the schedule.
// ZeRO-3 gathers weights and sends gradients in this order. Pure functions.
#pragma once

#include <span>
#include <vector>

#include "trireme/plan/schedule/schedule.h"
#include "trireme/sync/parameter_sync.h"

namespace trireme::inline v0::parallel {

/// One stage of this rank. Its index among the `stages` of uses_of() is Use::part.
struct StageBlocks {
  int stage = 0;
  std::uint32_t blocks = 0;
};

/// The phase of a pass; a ForwardBackward is two passes.
Phase phase_of(plan::ActionKind pass);

/// `order` is this rank's; transfers are skipped. A Use has the micro-batch number of the schedule.
std::vector<Use> uses_of(std::span<const plan::Action> order, std::span<const StageBlocks> stages);

}  // namespace trireme::inline v0::parallel
