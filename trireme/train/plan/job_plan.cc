#include "trireme/train/plan/job_plan.h"

#include <cmath>

#include "trireme/base/error.h"
#include "trireme/base/words.h"
#include "trireme/memory/offload_folder.h"
#include "trireme/memory/recompute.h"
#include "trireme/observe/machine.h"
#include "trireme/optim/groups.h"
#include "trireme/plan/mixing.h"
#include "trireme/plan/named_strategies.h"
#include "trireme/ps/settings.h"
#include "trireme/strategy/option_check.h"
#include "trireme/sync/compression/compressor.h"
#include "trireme/train/device.h"
#include "trireme/train/plan/auto_recompute.h"

namespace trireme::inline v0::train {
namespace {

plan::Exchange exchange_of(const Settings& settings, int ranks) {
  const LocalOptions& local = settings.strategy.local;
  // During validation, a rank also keeps a copy of its local weights.
  plan::Exchange exchange{.every = local.steps,
                          .after = local.post_local_after,
                          .kept = 1,
                          .bits = "the number of ranks"};
  const std::string steps = counted(local.steps, "step");
  if (settings.strategy.sync == "diloco") {
    exchange.about = "DiLoCo (a copy on each rank; an outer step every " + steps + ")";
    exchange.kept += 2;
  } else if (settings.strategy.sync == "easgd") {
    exchange.about = "EASGD (a copy on each rank, pulled to a centre every " + steps + ")";
    exchange.kept += 1;
  } else if (settings.strategy.sync == "gossip") {
    const plan::Mixing mixing = plan::make_mixing(local.graph, ranks, local.graph_seed);
    exchange.about = "gossip (a copy on each rank, averaged with neighbours every " + steps + ")";
    const plan::MixingFacts facts = plan::facts_of(mixing);
    exchange.graph = plan::describe(mixing, facts);
    exchange.messages = facts.most_messages;
  } else {
    exchange.about = "local SGD (a copy on each rank, averaged every " + steps + ")";
    exchange.moved = 1 + optim::moments_per_element(settings.optimizer);
  }
  return exchange;
}

// Without the rows of embeddings, which take memory when they are first updated.
std::int64_t server_bytes_of(const Settings& settings, const plan::PlannedJob& job) {
  const ServerOptions& server = settings.strategy.server;
  const double numbers = 2 + optim::moments_per_element(settings.optimizer) +  // and a sum
                         (ps::predicts(server, settings.optimizer) ? 1 : 0) +
                         (server.compensation > 0 ? job.data_ranks() : 0);
  return static_cast<std::int64_t>(static_cast<double>(job.parameters) *
                                   static_cast<double>(job.master_bytes()) * numbers *
                                   server.replicas / settings.servers);
}

// A step pushes gradients to the servers and pulls weights; a rank keeps what it sent and got.
plan::Exchange served_exchange_of(const Settings& settings, const plan::PlannedJob& job) {
  const ServerOptions& server = settings.strategy.server;
  const std::string how = server.bound() > 0   ? "staleness up to " + grouped(server.bound())
                          : server.bound() < 0 ? "asynchronous"
                          : server.backup > 0
                              ? "synchronous, " + counted(server.backup, "backup worker")
                              : "synchronous";
  const std::string copies =
      server.replicas > 1 ? ", of " + counted(server.replicas, "copy", "copies") + " of each shard"
                          : "";
  return {.about = counted(settings.servers, "parameter server") + ", " + how,
          .every = 1,
          .kept = 2,
          .messages = 2,
          .bits = server.alone() ? "the order in which gradients arrive" : "",
          .beside = counted(settings.servers, "process", "processes") + " beside the ranks, " +
                    (settings.servers > 1 ? "each with " : "with ") +
                    bytes_text(static_cast<double>(job.server_bytes)) +
                    " of weights, sums and optimizer state" +
                    (server.compensation > 0 ? ", and of the weights that each worker has" : "") +
                    copies + ", besides the program"};
}

// After the model's numbers are set.
void set_sync(plan::PlannedJob& job, const Settings& settings, const parallel::SyncPlan& sync) {
  job.sync = sync.sync;
  job.sharding = sync.title;
  job.owners = sync.owners;
  job.shares = sync.assignment.weights;
  job.shards_gradients = sync.shards_gradients();
  job.shards_weights = sync.shards_weights;
  if (sync.local) job.exchange = exchange_of(settings, job.data_ranks());
  if (!sync.served) return;
  job.servers = settings.servers;
  job.server_bytes = server_bytes_of(settings, job);
  job.exchange = served_exchange_of(settings, job);
  job.moments_on_servers = optim::moments_per_element(settings.optimizer);
  job.optimizer_moments -= job.moments_on_servers;
}

// Under memory.offload.
void set_on_host(plan::PlannedJob& job, const Settings& settings, const parallel::SyncPlan& sync) {
  const bool in_file = settings.strategy.offload != memory::kOnHost;
  job.weights_on_host = (in_file || !sync.local) && (job.in_16_bits() || job.shards_weights);
  // An average of the weights goes to a file, too; on a host it is in the same memory as these.
  job.moments_on_host = in_file || job.weights_on_host
                            ? job.optimizer_moments
                            : optim::moments_per_element(settings.optimizer);
}

void set_keeping(plan::PlannedJob& job, const Settings& settings, int ranks) {
  const bool alone = job.servers > 0 && settings.strategy.server.alone();
  job.keeping = {.elastic = settings.elastic.on() && !alone,
                 .alone = alone,
                 .restarts = settings.elastic.restarts != 0,
                 .least_ranks = settings.elastic.min > 0 ? settings.elastic.min : ranks,
                 .multiple = ranks_of_a_copy(settings.strategy),
                 .copies = settings.checkpoints.memory,
                 .copies_every = settings.checkpoints.memory_every,
                 .checkpoints = settings.checkpoints.every,
                 .saves = true};
}

void set_tuning(plan::PlannedJob& job, const Settings& settings) {
  job.tuning_path = plan::tuning_path();
  if (!job.simulated) {
    job.tuning = plan::read_tuning();
    return;
  }
  // The user's link describes the simulated network.
  job.tuning.emplace();
  job.tuning->links["sim"] = settings.link;
  job.tuning->machine = "simulated";
  job.tuning_path = "--link";
}

// The rate of a large product is what the model's operations a second are compared with (MFU).
void set_speeds(plan::PlannedJob& job, const ModelFigures& figures, KernelSpeeds& speeds) {
  if (figures.kernels.empty() || job.simulated) return;
  job.kernel_seconds = speeds.seconds(figures.kernels);
  const models::Kernel sums{"memory", {job.held_parameters()}}, product{"linear", {512, 768, 768}};
  job.memory_rate = 12 * work_of(sums) / speeds.seconds({sums});
  job.product_rate = 6 * work_of(product) / speeds.seconds({product});
  job.speed_source = speeds.source();
}

// On a device, the figures of its maker take the place of measurements. Processes cannot leave
// NCCL's groups, so an elastic job meets through the host's memory.
void set_device(plan::PlannedJob& job, const Settings& settings) {
  const std::string& kind = job.device = settings.device_kind;
  job.ranks_per_device = settings.ranks_per_device;
  if (kind == "cpu") return;
  if (kind == "cuda" && job.ranks > 1 && job.ranks_per_device == 1 && job.transport == "auto" &&
      !settings.elastic.on())
    job.transport = "nccl";
  const PlannedDevice planned = planned_device(settings);
  job.accelerator = planned.accelerator;
  job.device_memory = planned.memory;
  if (job.accelerator == nullptr) return;
  const plan::Accelerator& device = *job.accelerator;
  job.product_rate = plan::peak_rate(device, job.precision, settings.products);
  if (job.product_rate <= 0 || job.flops_per_micro <= 0) return;
  job.kernel_seconds = job.flops_per_micro / (plan::kUsualShare * job.product_rate);
  job.memory_rate = device.bandwidth;
  job.speed_source = "its maker's figures: " + grouped(std::lround(job.product_rate / 1e12)) +
                     " TFLOP/s, of which " + grouped(std::lround(100 * plan::kUsualShare)) +
                     " % are assumed, and " + grouped(std::lround(device.bandwidth / 1e9)) +
                     " GB/s of memory; without the launches of small kernels";
}

// The activations of one of the ranks that compute a layer together.
std::vector<models::BlockActivations> of_a_rank(std::vector<models::BlockActivations> blocks,
                                                const StrategyOptions& strategy) {
  for (models::BlockActivations& block : blocks) {
    const std::int64_t whole = strategy.sequence ? 0 : block.whole;
    const int tokens = strategy.expert * strategy.context;  // ranks that share the tokens
    block.kept = (whole + (block.kept - whole) / strategy.tensor) / tokens;
    block.probabilities /= strategy.tensor * tokens;
    block.inputs /= (strategy.sequence ? strategy.tensor : 1) * tokens;
  }
  return blocks;
}

// Refuses a pattern of optimizer.groups that matches no parameter.
void check_groups(const Settings& settings) {
  const auto& groups = std::visit(
      [](const auto& one) -> const auto& { return one.groups; }, settings.optimizer);
  if (groups.empty()) return;
  const TrainingModel& model = settings.model;
  std::vector<optim::ParameterInfo> parameters;
  for (std::string& name :
       parameter_names(model.names.specs().empty() ? model.blocks : model.names))
    parameters.push_back({.name = std::move(name)});
  optim::check_groups(parameters, groups);
}

// Workers that train on their own take equal parts of a batch, of whole micro-batches.
void check_own_batches(const BatchesOptions& batches, int workers) {
  if (batches.batch % (workers * batches.micro) == 0) return;
  throw ConfigError(
      "batch.global " + std::to_string(batches.batch) + " for " + counted(workers, "worker") +
          " with batches of their own",
      {.operation = "config",
       .advice = "Make it a multiple of the workers times batch.micro, " +
                 std::to_string(batches.micro) + ", or start another number of workers."});
}

// Checks what each rank's Strategy would refuse later.
parallel::SyncPlan check_strategy(const Settings& settings, const ModelFigures& figures,
                                  int ranks) {
  StrategyOptions options = settings.strategy;
  if (options.recompute == kAutoRecompute) options.recompute = "none";  // chosen later
  // Hosts are not known yet, so hybrid is planned on one host. Each simulated rank is a host.
  const int ranks_a_host = settings.job.transport == "sim" ? 1 : ranks;
  if (settings.device_kind != "cpu") options.device.kind = DeviceKind::Other;  // whichever it is
  const parallel::SyncPlan sync =
      parallel::check_options(options, optim::make_optimizer(settings.optimizer)->name(),
                              {.ranks = ranks, .ranks_a_host = ranks_a_host});
  if (figures.rows_on_servers && !sync.served)
    throw ConfigError(
        "the rows of the model's embeddings are trained by parameter servers, and "
        "parallel.sync = \"" +
            settings.strategy.sync + "\" has none",
        {.operation = "config",
         .label = "parallel.sync",
         .advice = "Set parallel.sync = \"server\" (docs/servers.md)."});
  if (!settings.strategy_name.empty())
    plan::check_ranks(plan::find_strategy(settings.strategy_name), ranks, ranks / ranks_a_host);
  check_groups(settings);
  if (sync.served) ps::check_server_options(settings.strategy.server, ranks, settings.servers);
  if (sync.served && settings.strategy.server.alone()) check_own_batches(settings.batches, ranks);
  if (figures.shape) parallel::check_shape(options, *figures.shape, settings.batches.micro);
  return sync;
}

void set_policy(plan::PlannedJob& job, const std::string& policy, const ModelFigures& figures) {
  const memory::RecomputePolicy recompute =
      memory::parse_recompute(policy, figures.activations.size());
  job.recompute = policy;
  const memory::ActivationCosts costs = memory::costs_of(figures.activations, recompute);
  job.activations_per_micro = job.offloads_activations ? costs.peak_offloaded : costs.peak;
  if (job.offloads_activations) job.file_per_micro = costs.file;
  job.share_again = costs.share_again;
  job.layer_sums = figures.layer_sums;
  // A block's second forward pass sums again: twice in a layer, once in the embedding.
  for (std::size_t i = 0; job.layer_sums > 0 && i < figures.activations.size(); ++i)
    if (recompute.of(i, figures.activations.size()) == memory::Recompute::Full)
      job.layer_sums += i == 0 ? 1 : 2;
}

// Bytes that the limit leaves for a micro-batch's activations; memory grows linearly with them.
std::int64_t room_for_activations(plan::PlannedJob job) {
  constexpr std::int64_t kProbe = 1'000'000'000;
  job.activations_per_micro = 0;
  const std::int64_t fixed = plan::make_plan(job).rank_bytes();
  job.activations_per_micro = kProbe;
  const std::int64_t probed = plan::make_plan(job).rank_bytes() - fixed;
  if (probed <= 0) return 0;  // too large to count (plan::make_plan)
  const double share = static_cast<double>(kProbe) / static_cast<double>(probed);
  return static_cast<std::int64_t>(static_cast<double>(job.memory_limit - fixed) * share);
}

void set_recompute(plan::PlannedJob& job, const Settings& settings, const ModelFigures& figures) {
  if (settings.strategy.recompute != kAutoRecompute)
    return set_policy(job, settings.strategy.recompute, figures);
  if (job.offloads_activations)
    throw ConfigError(
        "memory.recompute = \"auto\" cannot be combined with memory.offload_activations",
        {.operation = "plan",
         .label = "memory.recompute",
         .advice = "Use one of them, or name a policy beside the folder."});
  if (job.memory_limit == 0)
    throw ConfigError(
        "memory.recompute = \"auto\" makes activations fit into memory.limit, and "
        "there is none",
        {.operation = "plan",
         .label = "memory.recompute",
         .advice = "Set memory.limit to the bytes that a rank may take, or name a "
                   "policy: none, selective, every-2, full."});
  std::vector<std::string> names;
  for (const models::BlockSpec& spec : settings.model.blocks.specs()) names.push_back(spec.name);
  const AutoRecompute chosen =
      choose_recompute(figures.activations, names, room_for_activations(job));
  set_policy(job, chosen.policy, figures);
  job.recompute_table = chosen.table;
}

}  // namespace

PlannedDevice planned_device(const Settings& settings) {
  if (const auto* named = plan::find_accelerator(settings.device))  // of `plan --device`
    return {named, named->memory};
  const std::string here = describe_devices(settings.device_kind);
  PlannedDevice device{plan::find_accelerator(here), plan::memory_in_names(here)};
  if (device.memory == 0 && settings.device_kind == "cuda") device.memory = gpu_memory();
  if (device.memory == 0 && device.accelerator != nullptr)
    device.memory = device.accelerator->memory;
  return device;
}

std::int64_t text_bytes(const input::Corpus& corpus) {
  return static_cast<std::int64_t>(corpus.train.size() + corpus.validation.size());
}

std::int64_t program_bytes(const input::Corpus& corpus) {
  static const std::int64_t bytes = observe::memory_bytes() - text_bytes(corpus);
  return bytes;
}

plan::TrainingPlan plan_training(const Settings& settings, const input::Corpus& corpus,
                                 const std::string& name, int ranks, int ranks_here,
                                 KernelSpeeds* speeds) {
  const observe::Cores cores = observe::usable_cores();
  plan::PlannedJob job;
  job.name = name;
  job.text = text_bytes(corpus);
  job.program = program_bytes(corpus);
  // No owner is needed: `corpus` outlives this call.
  const Examples examples = examples_of(settings.model.data->validation(corpus.validation, {}));
  check_reads(settings.model.blocks, examples(1).fields);
  ModelFigures figures = settings.model.figures(settings.batches.micro, examples);
  const parallel::SyncPlan sync = check_strategy(settings, figures, ranks);
  figures.activations = of_a_rank(std::move(figures.activations), settings.strategy);
  const DataWords& words = settings.model.data->words();
  job.model = settings.model.description;
  job.data = settings.model.data->describe(corpus);
  job.parameters = figures.parameters;
  job.precision = settings.strategy.precision;
  // An average of the weights is sharded like the optimizer's state.
  job.optimizer_moments =
      optim::moments_per_element(settings.optimizer) + (settings.strategy.ema > 0 ? 1 : 0);
  job.batch = settings.batches.batch;
  job.micro = settings.batches.micro;
  job.tokens_per_sample = words.items_per_sample;
  job.sample = words.sample;
  job.steps = settings.steps;
  job.flops_per_micro = figures.flops;
  job.temporaries = figures.temporaries;
  job.ranks = ranks;
  job.pipeline = settings.strategy.pipeline;
  job.schedule = settings.strategy.schedule;
  job.chunks = settings.strategy.chunks;
  job.expert = settings.strategy.expert;
  job.expert_parameters = figures.expert_parameters;
  job.context = settings.strategy.context;
  job.tensor = settings.strategy.tensor;
  job.layer_sum_bytes = figures.layer_sum_bytes / job.context / job.expert;
  job.sequence = settings.strategy.sequence;
  job.blocks = static_cast<std::int64_t>(settings.model.blocks.specs().size());
  set_sync(job, settings, sync);
  if (!settings.strategy.offload.empty()) set_on_host(job, settings, sync);
  job.largest_blocks = figures.largest_neighbours - figures.expert_neighbours +
                       figures.expert_neighbours / job.expert;
  job.bucket_bytes = settings.strategy.bucket_bytes;
  job.kernel_threads = settings.kernel_threads;
  job.lanes = settings.strategy.lanes;
  job.usable_cores = cores.usable;
  job.cores_reason = cores.reason;
  job.transport = settings.job.transport;
  job.simulated = job.transport == "sim";
  job.algorithm = settings.job.algorithm;
  job.compression = settings.strategy.compression;
  job.keeps_residual = parallel::keeps_residual(job.compression);
  job.memory_limit = std::max<std::int64_t>(settings.memory_limit, 0);
  job.ranks_here = ranks_here;
  job.graphs = settings.strategy.graphs;
  job.offloads_activations = !settings.strategy.offload_activations.empty();
  set_keeping(job, settings, ranks);
  set_device(job, settings);
  set_tuning(job, settings);
  set_recompute(job, settings, figures);
  if (job.device == "cpu" && speeds != nullptr) {
    plan::make_plan(job);  // refuses what cannot be before kernels are measured
    set_speeds(job, figures, *speeds);
  }
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
      .set("recompute", plan.job.recompute)
      .set("predicted_activation_bytes", static_cast<long>(plan.memory.activations))
      .set("predicted_file_bytes", static_cast<long>(plan.memory.in_file))
      .set("predicted_temporary_bytes", static_cast<long>(plan.memory.temporaries))
      .set("predicted_program_bytes", static_cast<long>(plan.memory.program))
      .set("predicted_kernel_bytes", static_cast<long>(plan.memory.kernels))
      .set("predicted_group_bytes", static_cast<long>(plan.memory.group))
      .set("predicted_text_bytes", static_cast<long>(plan.memory.text))
      .set("predicted_snapshot_bytes", static_cast<long>(plan.memory.snapshot))
      .set("predicted_copy_bytes", static_cast<long>(plan.memory.copies))
      .set("predicted_copy_sent_bytes", static_cast<long>(plan.state_costs.sent))
      .set("predicted_copy_seconds", plan.state_costs.refresh.seconds)
      .set("predicted_host_bytes", static_cast<long>(plan.host_total()))
      .set("fits", plan.fits())
      .set("predicted_communication_seconds", plan.communication.seconds)
      .set("communication_source", plan.communication.source);
  if (plan.job.servers > 0)
    event.set("servers", plan.job.servers)
        .set("predicted_server_bytes", static_cast<long>(plan.job.server_bytes));
  if (plan.on_device())
    event.set("device", plan.job.device)
        .set("ranks_per_device", plan.job.ranks_per_device)
        .set("device_memory_bytes", static_cast<long>(plan.job.device_bytes()))
        .set("predicted_device_bytes", static_cast<long>(plan.rank_bytes()));
  if (plan.step_seconds() > 0)
    event.set("predicted_step_seconds", plan.step_seconds())
        .set("predicted_compute_seconds", plan.compute_seconds)
        .set("predicted_update_seconds", plan.update_seconds)
        .set("predicted_host_seconds", plan.host_seconds)
        .set("predicted_layer_seconds", plan.layers.seconds)
        .set("speed_source", plan.job.speed_source);
  return event;
}

}  // namespace trireme::inline v0::train
