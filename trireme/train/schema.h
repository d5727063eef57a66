// The keys of a training job (API.md: keys), and what a checked configuration of one comes to.
//
// Everything that can be wrong with a configuration alone is found here, before anything starts.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "trireme/base/config.h"
#include "trireme/checkpoint/checkpointer.h"
#include "trireme/input/batches.h"
#include "trireme/job/job.h"
#include "trireme/optim/optimizer.h"
#include "trireme/optim/schedule.h"
#include "trireme/parallel/strategy.h"
#include "trireme/plan/tuning.h"
#include "trireme/train/model_registry.h"

namespace trireme {
inline namespace v0 {
namespace train {

/// Which model `path`, environment or assignments name, the later before the earlier; the standard
/// one where they name none, or none that is there (which reading them refuses).
const ModelKind& chosen_model(const std::string& path, const config::Environment& environment,
                              const std::vector<std::string>& assignments,
                              const ModelRegistry& models);
/// The keys of a job that trains `kind`, one of `models`.
config::Schema training_schema(const ModelRegistry& models, const ModelKind& kind);

/// default < `path` (none where empty) < environment < `assignments` (each "key=value"). The model
/// that they name decides which model.* keys there are.
config::Config read_config(const std::string& path, const config::Environment& environment,
                           const std::vector<std::string>& assignments,
                           const ModelRegistry& models = own_models());

/// A model with its numbers.
struct Model {
  std::string description = {};  // "gpt, 4 layers, 4 heads, 128 wide"
  std::int64_t block = 0;        // longest sequence, tokens
  models::Blocks blocks = {};
  /// Of micro-batches of so many sequences. May build blocks and run them (model_size.h).
  std::function<ModelSize(std::int64_t sequences)> size = {};
};

/// A configuration as the parts that take it. Throws ConfigError where values do not fit together.
struct Settings {
  explicit Settings(const config::Config& config, const ModelRegistry& models = own_models());
  Model model;
  StrategyOptions strategy;
  OptimizerOptions optimizer;
  optim::Schedule schedule;
  BatchesOptions batches;
  JobOptions job;
  plan::LinkCost link;  // of a simulated cluster
  CheckpointerOptions checkpoints;
  std::string data_path;  // empty: the compiler's headers
  std::int64_t steps = 0;
  std::int64_t validate_every = 0, validate_sequences = 0;
  std::int64_t patience = 0;  // validations without an improvement of at least …
  double min_improvement = 0;
  int kernel_threads = 1;
  std::string kernel_table;       // a file; empty: the built-in one
  std::int64_t sample_bytes = 0;  // of text written at the end
};

}  // namespace train
}  // namespace v0
}  // namespace trireme
