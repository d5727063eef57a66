#include "trireme/train/evaluation/forward_model.h"

#include "trireme/checkpoint/checkpointer.h"
#include "trireme/input/batches.h"
#include "trireme/sync/sync_plan.h"

namespace trireme::inline v0::train {

StrategyOptions forward_options(const Job& job, StrategyOptions options) {
  options.recompute = "none";
  options.offload_activations.clear();
  if (parallel::is_served(options.sync)) {
    options.sync = "plain";
    options.server = {};
  }
  const int model = options.pipeline * options.expert * options.context * options.tensor;
  if (job.size() % model == 0 && options.data == 0) return options;
  options.pipeline = options.expert = options.context = options.tensor = 1;
  options.sequence = false;
  options.data = options.shard = 0;
  options.sync = "plain";
  return options;
}

long load_newest(Job& job, Strategy& strategy, const std::string& checkpoints) {
  Checkpointer checkpointer(job, checkpoints, {.every = 0, .lock = false});
  checkpointer.add("train", strategy);
  strategy.use_average(false);  // of another checkpoint
  const long step = checkpointer.resume();
  strategy.use_average(true);
  return step;
}

std::vector<Batch> held_out_batches(const Job& job, const Settings& settings,
                                    const Dataset& validation, std::int64_t samples) {
  const std::int64_t batch = settings.batches.batch;
  return fixed_batches(job, validation, batch, settings.batches.micro,
                       (samples + batch - 1) / batch);
}

}  // namespace trireme::inline v0::train
