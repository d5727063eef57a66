// The keys of a training job (docs/api.md), and the checked settings of a configuration. Finds all
// errors of a configuration before anything starts.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "trireme/base/config/config.h"
#include "trireme/checkpoint/checkpointer.h"
#include "trireme/input/batches.h"
#include "trireme/job/job.h"
#include "trireme/optim/optimizer.h"
#include "trireme/optim/schedule.h"
#include "trireme/plan/tuning.h"
#include "trireme/strategy/strategy.h"
#include "trireme/train/config/elastic_keys.h"
#include "trireme/train/families/model_family.h"

namespace trireme::inline v0::train {

/// The keys for a model family, with its default data or with `data`.
config::Schema training_schema(const ModelFamily& family);
config::Schema training_schema(const ModelFamily& family, const DataFamily& data);
/// The text of `train --help-config`: all keys, also those of every model family under its name.
std::string training_help();

/// Reads a configuration with the keys of the model model.name and the data data.name. Later
/// sources win: defaults, the file `path` (if not empty), environment, `assignments` ("key=value").
/// A run's config.toml has the values of all sources, so it is read alone.
config::Config read_config(
    const std::string& path,
    const config::Environment& environment = [](const char*) { return nullptr; },
    const std::vector<std::string>& assignments = {});

/// memory.limit = "none".
inline constexpr std::int64_t kNoMemoryLimit = -1;

/// The options of each component. The constructor throws ConfigError if values do not fit together.
struct Settings {
  explicit Settings(const config::Config& config);
  TrainingModel model;
  std::uint64_t seed = 1;
  StrategyOptions strategy;
  int servers = 0;            // parameter servers to start beside the ranks
  std::string strategy_name;  // parallel.strategy; empty: none
  OptimizerOptions optimizer;
  optim::Schedule schedule;
  BatchesOptions batches;
  JobOptions job;
  plan::LinkCost link;  // of a simulated cluster
  CheckpointerOptions checkpoints;
  ElasticSettings elastic;
  std::string coordinator_store;  // rendezvous.store
  std::string data_path;          // for DataSource::load
  std::int64_t steps = 0;
  std::optional<Duration> max_time;  // counted from the start of the command
  std::int64_t validate_every = 0, validate_samples = 0;
  std::int64_t patience = 0;  // see EarlyStop
  double min_improvement = 0;
  int kernel_threads = 1;
  std::string products = "fp32";  // fp32 | bf16 | tf32
  std::string kernel_table;       // a file; empty = the built-in one
  std::int64_t sample_bytes = 0;  // of text written at the end
  std::string device;             // auto, or a kind (device.h)
  int ranks_per_device = 1;
  /// The kind of device that is planned for. The caller sets it (choose_device()).
  std::string device_kind = "cpu";
  /// Bytes that a rank may take; 0 = what the machine has left; or kNoMemoryLimit.
  std::int64_t memory_limit = 0;

 private:
  void set_up_helpers(const config::Config& config);
};

}  // namespace trireme::inline v0::train
