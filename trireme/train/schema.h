// The keys of a training job (API.md: keys), and what a checked configuration of one comes to.
//
// Everything that can be wrong with a configuration alone is found here, before anything starts.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "trireme/base/config.h"
#include "trireme/checkpoint/checkpointer.h"
#include "trireme/input/batches.h"
#include "trireme/job/job.h"
#include "trireme/optim/optimizer.h"
#include "trireme/optim/schedule.h"
#include "trireme/parallel/strategy.h"
#include "trireme/plan/tuning.h"
#include "trireme/train/model_family.h"

namespace trireme {
inline namespace v0 {
namespace train {

/// With the data that the model has by default, or other.
config::Schema training_schema(const ModelFamily& family);
config::Schema training_schema(const ModelFamily& family, const DataFamily& data);
/// All keys, those of every model family under its name: `train --help-config`.
std::string training_help();

/// The keys are those of the model that model.name names, and of the data that data.name names.
/// default < `path` (none where empty) < environment < `assignments` (each "key=value").
config::Config read_config(const std::string& path, const config::Environment& environment,
                           const std::vector<std::string>& assignments);

/// memory.limit = "none".
inline constexpr std::int64_t kNoMemoryLimit = -1;

/// A configuration as the parts that take it. Throws ConfigError where values do not fit together.
struct Settings {
  explicit Settings(const config::Config& config);
  TrainingModel model;
  std::uint64_t seed = 1;
  StrategyOptions strategy;
  OptimizerOptions optimizer;
  optim::Schedule schedule;
  BatchesOptions batches;
  JobOptions job;
  plan::LinkCost link;  // of a simulated cluster
  CheckpointerOptions checkpoints;
  std::string data_path;  // as DataSource::load takes it
  std::int64_t steps = 0;
  std::optional<Duration> max_time;  // of a start, from the command's begin
  std::int64_t validate_every = 0, validate_samples = 0;
  std::int64_t patience = 0;  // validations without an improvement of at least …
  double min_improvement = 0;
  int kernel_threads = 1;
  std::string products = "fp32";  // fp32 | bf16
  std::string kernel_table;       // a file; empty: the built-in one
  std::int64_t sample_bytes = 0;  // of text written at the end
  std::string device;             // auto | cpu | cuda (device.h)
  /// Bytes that a rank may take; 0: what is there; kNoMemoryLimit.
  std::int64_t memory_limit = 0;

 private:
  void set_up_helpers(const config::Config& config);
};

}  // namespace train
}  // namespace v0
}  // namespace trireme
