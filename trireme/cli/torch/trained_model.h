// A trained run, loaded into this process for generate and eval.
#pragma once

#include <memory>
#include <string>

#include "trireme/job/job.h"
#include "trireme/strategy/strategy.h"
#include "trireme/train/config/schema.h"

namespace trireme::inline v0::cli {

struct TrainedModel {
  /// `run`: the folder that `train` printed. Throws ConfigError if it is not a run's folder or has
  /// no checkpoint, and CheckpointError if the checkpoint is damaged.
  TrainedModel(int argc, char** argv, const std::string& run);
  const config::Config config;
  const train::Settings settings;
  Job job;
  Strategy strategy;
  long steps_done = 0;
};

}  // namespace trireme::inline v0::cli
