// The figures of a step that its result has. The loop that ran the step adds times and rates.
#pragma once

#include "trireme/observe/events.h"
#include "trireme/strategy/data_parallel.h"
#include "trireme/strategy/strategy.h"

namespace trireme::inline v0::train {

observe::StepFigures figures_of(const StepResult& result);
observe::StepFigures figures_of(const BatchResult& result);

}  // namespace trireme::inline v0::train
