#include "trireme/train/job_plan.h"

#include "trireme/base/error.h"
#include "trireme/memory/recompute.h"
#include "trireme/observe/machine.h"
#include "trireme/parallel/sync_plan.h"
#include "trireme/plan/mixing.h"

namespace trireme {
inline namespace v0 {
namespace train {
namespace {

plan::Exchange exchange_of(const Settings& settings, int ranks) {
  const LocalOptions& local = settings.strategy.local;
  // A validation sets the own weights aside while it shows the model.
  plan::Exchange exchange{.every = local.steps, .after = local.post_local_after, .kept = 1};
  const std::string steps = std::to_string(local.steps) + (local.steps == 1 ? " step" : " steps");
  if (settings.strategy.sync == "diloco") {
    exchange.about = "DiLoCo (a copy on each rank; an outer step every " + steps + ")";
    exchange.kept += 2;
  } else if (settings.strategy.sync == "easgd") {
    exchange.about = "EASGD (a copy on each rank, pulled to a centre every " + steps + ")";
    exchange.kept += 1;
  } else if (settings.strategy.sync == "gossip") {
    const plan::Mixing mixing = plan::make_mixing(local.graph, ranks, local.graph_seed);
    exchange.about = "gossip (a copy on each rank, averaged with neighbours every " + steps + ")";
    exchange.graph = plan::describe(mixing);
    exchange.messages = plan::facts_of(mixing).most_messages;
  } else {
    exchange.about = "local SGD (a copy on each rank, averaged every " + steps + ")";
    exchange.moved = 1 + optim::moments_per_element(settings.optimizer);
  }
  return exchange;
}

void set_tuning(plan::Job& job, const Settings& settings) {
  job.tuning_path = plan::tuning_path();
  if (!job.simulated) {
    job.tuning = plan::read_tuning();
    return;
  }
  // The network is what the user said that it is.
  job.tuning.emplace();
  job.tuning->links["sim"] = settings.link;
  job.tuning->machine = "simulated";
  job.tuning_path = "--link";
}

// Of one of the ranks that share a layer.
std::vector<models::BlockActivations> among_tensor_ranks(
    std::vector<models::BlockActivations> blocks, const StrategyOptions& strategy) {
  for (models::BlockActivations& block : blocks) {
    const std::int64_t whole = strategy.sequence ? 0 : block.whole;
    block.kept = whole + (block.kept - whole) / strategy.tensor;
    block.probabilities /= strategy.tensor;
    if (strategy.sequence) block.inputs /= strategy.tensor;
  }
  return blocks;
}

// `data`: of job.ranks, those that are left for it.
void check_data(const Settings& settings, const plan::Job& job, int data) {
  const int asked = settings.strategy.data;
  if (asked == 0 || asked == data || asked * job.owners == data) return;
  const int wanted = asked * job.model_ranks();
  throw ConfigError(
      "parallel.data = " + std::to_string(asked) +
          (job.pipeline > 1 ? " x parallel.pipeline = " + std::to_string(job.pipeline) : "") +
          (job.tensor > 1 ? " x parallel.tensor = " + std::to_string(job.tensor) : "") +
          (job.model_ranks() > 1 ? " are " + std::to_string(wanted) + " ranks" : "") + ", but " +
          std::to_string(job.ranks) + " ranks were asked for",
      {.operation = "plan",
       .advice = "Leave parallel.data at 0, or give --ranks " + std::to_string(wanted) + "."});
}

std::int64_t text_bytes(const input::Corpus& corpus) {
  return static_cast<std::int64_t>(corpus.train.size() + corpus.validation.size());
}

}  // namespace

std::int64_t program_bytes(const input::Corpus& corpus) {
  static const std::int64_t bytes = observe::resident_bytes() - text_bytes(corpus);
  return bytes;
}

plan::TrainingPlan plan_training(const Settings& settings, const input::Corpus& corpus,
                                 const std::string& name, int ranks, double flop_rate) {
  const observe::Cores cores = observe::usable_cores();
  plan::Job job;
  job.name = name;
  job.text = text_bytes(corpus);
  job.program = program_bytes(corpus);
  const ModelFigures figures = settings.model.figures(settings.batches.micro);
  const DataWords& words = settings.model.data->words();
  job.model = settings.model.description;
  job.data = settings.model.data->describe(corpus);
  job.parameters = figures.parameters;
  job.precision = settings.strategy.precision;
  // An average of the weights lies with the optimizer's state, cut as it is.
  job.optimizer_moments =
      optim::moments_per_element(settings.optimizer) + (settings.strategy.ema > 0 ? 1 : 0);
  job.batch = settings.batches.batch;
  job.micro = settings.batches.micro;
  job.tokens_per_sample = words.items_per_sample;
  job.sample = words.sample;
  job.steps = settings.steps;
  const memory::RecomputePolicy recompute = memory::parse_recompute(settings.strategy.recompute);
  job.activations_per_micro = memory::peak_activations(
      among_tensor_ranks(figures.activations, settings.strategy), recompute);
  job.recompute = settings.strategy.recompute;
  job.flops_per_micro = figures.flops;
  job.share_again = memory::share_again(figures.activations, recompute);
  job.flop_rate = figures.flops > 0 ? flop_rate : 0;
  job.temporaries = figures.temporaries;
  job.ranks = ranks;
  job.pipeline = settings.strategy.pipeline;
  job.schedule = settings.strategy.schedule;
  job.chunks = settings.strategy.chunks;
  job.tensor = settings.strategy.tensor;
  job.sequence = settings.strategy.sequence;
  const int data = std::max(1, job.data_ranks());
  // Hosts are not known yet: hybrid is planned as on one of them.
  const parallel::SyncPlan sync =
      parallel::plan_sync(settings.strategy.sync, data, settings.strategy.shard, data);
  job.sync = sync.sync;
  job.owners = sync.owners;
  if (sync.local) job.exchange = exchange_of(settings, data);
  job.largest_blocks = figures.largest_neighbours;
  job.bucket_bytes = settings.strategy.bucket_bytes;
  job.kernel_threads = settings.kernel_threads;
  job.lanes = settings.strategy.lanes;
  job.usable_cores = cores.usable;
  job.cores_reason = cores.reason;
  job.transport = settings.job.transport;
  job.simulated = job.transport == "sim";
  job.algorithm = settings.job.algorithm;
  job.compression = settings.strategy.compression;
  job.memory_limit = settings.memory_limit;
  set_tuning(job, settings);
  check_data(settings, job, data);
  return plan::make_plan(job);
}

observe::Event plan_event(const plan::TrainingPlan& plan) {
  observe::Event event("plan");
  event.set("name", plan.job.name)
      .set("ranks", static_cast<long>(plan.job.ranks))
      .set("parameters", static_cast<long>(plan.job.parameters))
      .set("precision", plan.job.precision)
      .set("micro_batches", static_cast<long>(plan.micro_batches))
      .set("tokens_per_step", static_cast<long>(plan.tokens_per_step()))
      .set("predicted_memory_bytes", static_cast<long>(plan.memory.total()))
      .set("predicted_weight_bytes", static_cast<long>(plan.memory.weights))
      .set("sync", plan.job.sync)
      .set("owners", static_cast<long>(plan.job.owners))
      .set("predicted_moving_bytes", static_cast<long>(plan.memory.moving))
      .set("predicted_gradient_bytes", static_cast<long>(plan.memory.gradients))
      .set("predicted_optimizer_bytes", static_cast<long>(plan.memory.optimizer))
      .set("predicted_activation_bytes", static_cast<long>(plan.memory.activations))
      .set("predicted_temporary_bytes", static_cast<long>(plan.memory.temporaries))
      .set("predicted_program_bytes", static_cast<long>(plan.memory.program))
      .set("predicted_kernel_bytes", static_cast<long>(plan.memory.kernels))
      .set("predicted_group_bytes", static_cast<long>(plan.memory.group))
      .set("predicted_text_bytes", static_cast<long>(plan.memory.text))
      .set("predicted_communication_seconds", plan.communication.seconds)
      .set("communication_source", plan.communication.source);
  return event;
}

}  // namespace train
}  // namespace v0
}  // namespace trireme
