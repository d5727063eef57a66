#include "trireme/cli/torch/trained_model.h"

#include "trireme/base/error.h"
#include "trireme/rendezvous/environment.h"
#include "trireme/train/run_folder.h"
#include "trireme/train/trainer.h"

namespace trireme::inline v0::cli {
namespace {

config::Config config_of(const std::string& run) {
  const train::RunFolder folder = train::RunFolder::existing(run);
  if (!folder.has_checkpoint()) {
    throw ConfigError(
        folder.path() + " holds no checkpoint",
        {.operation = "load", .advice = "Train it first, or to its first checkpoint."});
  }
  return train::read_config(folder.config(), [](const char*) { return nullptr; }, {});
}

int set_up(const train::Settings& settings, int argc) {
  rendezvous::ignore_launchers();  // one process suffices
  train::set_up_process(settings);
  return argc;
}

// The run's layout if it fits the number of ranks; otherwise (usually one process) every rank has
// the whole model. There is no backward pass, so nothing is recomputed or offloaded.
StrategyOptions forward_alone(const Job& job, StrategyOptions options) {
  options.recompute = "none";
  options.offload_activations.clear();
  const int model = options.pipeline * options.expert * options.context * options.tensor;
  if (job.size() % model == 0 && options.data == 0) return options;
  options.pipeline = options.expert = options.context = options.tensor = 1;
  options.sequence = false;
  options.data = options.shard = 0;
  options.sync = "plain";
  return options;
}

}  // namespace

TrainedModel::TrainedModel(int argc, char** argv, const std::string& run)
    : config(config_of(run)),
      settings(config),
      job(set_up(settings, argc), argv),
      strategy(job, settings.model.blocks, forward_alone(job, settings.strategy),
               settings.optimizer) {
  Checkpointer checkpointer(job, train::RunFolder::existing(run).checkpoint(),
                            {.every = 0, .lock = false});
  checkpointer.add("train", strategy);
  steps_done = checkpointer.resume();
  strategy.use_average(true);
}

}  // namespace trireme::inline v0::cli
