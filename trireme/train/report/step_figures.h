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

/// The figures of a job's last step after its ranks have changed: rank 0, which writes them down,
/// may have joined later, or may have lost a peer in a step that other ranks ended. Collective. On
/// rank 0, if it `lacks` the figures of `step`: those of a rank whose `own` are of that step, if
/// there is one. Otherwise, and on the other ranks, nullopt.
std::optional<observe::StepFigures> last_step(comm::Communicator& world, bool lacks, long step,
                                              const std::optional<observe::StepFigures>& own);

}  // namespace trireme::inline v0::train
