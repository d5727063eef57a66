// From a checked configuration and a corpus to a plan::TrainingPlan: what `trireme plan` prints and
// `trireme train` prints before the first step. Starts nothing.
#pragma once

#include <string>

#include "trireme/input/corpus.h"
#include "trireme/observe/events.h"
#include "trireme/plan/training_plan.h"
#include "trireme/train/schema.h"

namespace trireme {
inline namespace v0 {
namespace train {

plan::TrainingPlan plan_training(const Settings& settings, const input::Corpus& corpus,
                                 const std::string& name, int ranks);

/// The "plan" event: the predicted figures.
observe::Event plan_event(const plan::TrainingPlan& plan);

}  // namespace train
}  // namespace v0
}  // namespace trireme
