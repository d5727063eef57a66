// A trained run, loaded into this process for generate and eval.
#pragma once

#include <memory>
#include <string>

#include "trireme/job/job.h"
#include "trireme/strategy/strategy.h"
#include "trireme/train/config/schema.h"

namespace trireme::inline v0::cli {

constexpr const char* kDeviceOption =
    "Where to compute: cpu, cuda, ...; auto: a GPU if the run may use one";

struct TrainedModel {
  /// `run`: the folder that `train` printed; `device`: as train.device. Throws ConfigError if the
  /// folder is not a run's or has no checkpoint, or if the device cannot be used, and
  /// CheckpointError if the checkpoint is damaged.
  TrainedModel(int argc, char** argv, const std::string& run, const std::string& device);
  const config::Config config;
  const train::Settings settings;
  Job job;
  Strategy strategy;
  long steps_done = 0;
};

}  // namespace trireme::inline v0::cli
