// From a checked configuration and a corpus to a plan::TrainingPlan: what `trireme plan` prints and
// `trireme train` prints before the first step. Starts nothing.
#pragma once

#include <cstdint>
#include <string>

#include "trireme/input/corpus.h"
#include "trireme/observe/events.h"
#include "trireme/plan/training_plan.h"
#include "trireme/train/schema.h"

namespace trireme {
inline namespace v0 {
namespace train {

/// `flop_rate`: of this machine's products (tensor::linear_rate), where somebody has measured it;
/// the plan then predicts the time of a step.
plan::TrainingPlan plan_training(const Settings& settings, const input::Corpus& corpus,
                                 const std::string& name, int ranks, double flop_rate = 0);

/// Bytes that this program, LibTorch included, takes before it computes anything: every rank takes
/// as much. The first call measures them, so it comes before any product is computed here.
std::int64_t program_bytes(const input::Corpus& corpus);
/// Bytes of the text, which the ranks of a host have once.
std::int64_t text_bytes(const input::Corpus& corpus);

/// The "plan" event: the predicted figures.
observe::Event plan_event(const plan::TrainingPlan& plan);

}  // namespace train
}  // namespace v0
}  // namespace trireme
