// The uses of blocks that a rank's passes through its pipeline stages come to, in the order of the
// schedule: what ZeRO-3 gathers and sends by. Pure.
#pragma once

#include <span>
#include <vector>

#include "trireme/parallel/data/parameter_sync.h"
#include "trireme/plan/schedule.h"

namespace trireme {
inline namespace v0 {
namespace parallel {

/// A stage of this rank, which is part number i of those that uses_of() is given.
struct StageBlocks {
  int stage = 0;
  std::uint32_t blocks = 0;
};

/// The phase of a pass; a ForwardBackward is two passes.
Phase phase_of(plan::ActionKind pass);

/// `order` is this rank's; transfers are passed over. A Use's micro-batch is the schedule's.
std::vector<Use> uses_of(std::span<const plan::Action> order, std::span<const StageBlocks> stages);

}  // namespace parallel
}  // namespace v0
}  // namespace trireme
