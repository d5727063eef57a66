#include "trireme/train/evaluation/forward_model.h"

#include "trireme/checkpoint/checkpointer.h"
#include "trireme/input/batches.h"
#include "trireme/memory/offload_folder.h"

namespace trireme::inline v0::train {

StrategyOptions forward_options(StrategyOptions options, Device device) {
  const bool on_cpu = device.kind == DeviceKind::Cpu;
  options.device = device;
  options.sync = "plain";
  options.pipeline = options.expert = options.context = options.tensor = 1;
  options.data = options.shard = options.chunks = 0;
  options.sequence = options.graphs = false;
  options.shares = "equal";
  options.server = {};
  options.recompute = "none";
  options.offload_activations.clear();
  if (on_cpu == (options.offload == memory::kOnHost)) options.offload.clear();
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

std::optional<Evaluation> evaluate(Strategy& strategy, const TrainingModel& model,
                                   const std::vector<Batch>& batches, bool until_stop) {
  std::vector<Loss> sums = {model.loss};
  if (model.correct) sums.push_back(model.correct);
  const std::vector<double> means = strategy.evaluate(batches, sums, until_stop);
  if (means.empty()) return std::nullopt;
  Evaluation result{.loss = means[0]};
  if (model.correct) result.accuracy = means[1];
  for (const Batch& batch : batches) result.count += batch.global_count;
  return result;
}

}  // namespace trireme::inline v0::train
