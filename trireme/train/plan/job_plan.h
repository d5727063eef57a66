// Makes the plan::TrainingPlan of a checked configuration and a corpus. `trireme plan` prints it,
// and `trireme train` prints it before the first step. Starts nothing.
#pragma once

#include <cstdint>
#include <string>

#include "trireme/input/corpus.h"
#include "trireme/observe/events.h"
#include "trireme/plan/training_plan.h"
#include "trireme/train/config/schema.h"
#include "trireme/train/plan/kernel_speeds.h"

namespace trireme::inline v0::train {

/// For `ranks` ranks, of which `ranks_here` share this host's memory and cores. With `speeds`, the plan
/// predicts the time of a step.
plan::TrainingPlan plan_training(const Settings& settings, const input::Corpus& corpus,
                                 const std::string& name, int ranks, int ranks_here,
                                 KernelSpeeds* speeds = nullptr);

/// The devices of ranks that do not train on the CPU.
struct PlannedDevice {
  const plan::Accelerator* accelerator = nullptr;  // if it is a known one
  std::int64_t memory = 0;                         // bytes of each; 0: not known
};
PlannedDevice planned_device(const Settings& settings);

/// Memory of this program without data, before it computes: mostly LibTorch, which every rank loads
/// too. Measured in the first call, so call it before this process computes.
std::int64_t program_bytes(const input::Corpus& corpus);
/// Bytes of the text, which the ranks of a host share.
std::int64_t text_bytes(const input::Corpus& corpus);

/// The "plan" event: the predicted figures.
observe::Event plan_event(const plan::TrainingPlan& plan);

}  // namespace trireme::inline v0::train
