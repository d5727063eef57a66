// The figures of a step that its result has. The loop that ran the step adds times and rates.
#pragma once

#include <optional>

#include "trireme/comm/communicator.h"
#include "trireme/observe/events.h"
#include "trireme/strategy/data_parallel.h"
#include "trireme/strategy/strategy.h"

namespace trireme::inline v0::train {

observe::StepFigures figures_of(const StepResult& result);
observe::StepFigures figures_of(const BatchResult& result);

/// Gives rank 0 the figures of `step` after the ranks have changed, if it `lacks` them: it may have
/// joined later, or lost a peer in a step that other ranks ended. They come from a rank whose `own`
/// are of `step`; nullopt if there is none, and on the other ranks. Collective.
std::optional<observe::StepFigures> last_step(comm::Communicator& world, bool lacks, long step,
                                              const std::optional<observe::StepFigures>& own);

}  // namespace trireme::inline v0::train
