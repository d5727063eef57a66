#include "trireme/plan/training_plan.h"

#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/base/mesh_division.h"
#include "trireme/base/pinned_blocks.h"
#include "trireme/base/transports.h"
#include "trireme/base/words.h"
#include "trireme/plan/limited_product.h"
#include "trireme/plan/open_sums.h"
#include "trireme/plan/partition/partition.h"
#include "trireme/plan/schedule/generators/schedules.h"
#include "trireme/plan/schedule/pipeline_simulator.h"

namespace trireme::inline v0::plan {
namespace {

std::string decimal(std::int64_t value) { return std::to_string(value); }

void check_arithmetic(const PlannedJob& job) {
  if (job.batch % job.micro != 0) {
    throw ConfigError("batch.micro does not divide batch.global: " + decimal(job.batch) + " = " +
                          decimal(job.batch / job.micro) + " x " + decimal(job.micro) + " + " +
                          decimal(job.batch % job.micro),
                      {.operation = "plan",
                       .advice = "Set batch.micro to a divisor of " + decimal(job.batch) + "."});
  }
  const std::int64_t micro_batches = job.batch / job.micro;
  const MeshShape shape{
      .pipeline = job.pipeline, .context = job.context, .tensor = job.tensor, .expert = job.expert};
  if (const auto refusal = refuse_mesh(shape, job.ranks))
    throw ConfigError(refusal->what, {.operation = "plan", .advice = refusal->advice});
  if (job.data_ranks() > micro_batches) {
    throw ConfigError(
        decimal(job.data_ranks()) + (job.model_ranks() > 1 ? " copies of the model" : " ranks") +
            " are more than the micro-batches of a step: batch.global " + decimal(job.batch) +
            " / batch.micro " + decimal(job.micro) + " = " + decimal(micro_batches) + ", so " +
            decimal(job.data_ranks() - micro_batches) + " of them would have nothing to do",
        {.operation = "plan",
         .advice = "Use --ranks " + decimal(micro_batches * job.model_ranks()) +
                   " or fewer, a smaller batch.micro or a larger batch.global."});
  }
}

// Measured (docs/design/007-predicted-memory.md).
constexpr std::int64_t kKernels = 10'000'000;     // oneDNN, MKL: generated code, workspaces
constexpr std::int64_t kOwnProcess = 38'000'000;  // gRPC, sockets, threads' heaps, huge pages

// Direct all-reduce reads and writes this rank's share of every peer's arena in place.
std::int64_t group_bytes(const PlannedJob& job, std::int64_t gradients) {
  if (job.ranks == 1) return 0;
  const bool shares = maps_within_host(job.transport);
  return kOwnProcess +
         (shares ? gradients - (gradients + job.data_ranks() - 1) / job.data_ranks() : 0);
}

std::int64_t among(std::int64_t bytes, const PlannedJob& job) {
  return (bytes + job.owners - 1) / job.owners;
}

// Buckets being filled, sent and received (sync/levels/sharded_sync.cc), separate for each stage of
// a rank; plus two blocks' weights in all. `own`: parameters of a rank's stages.
std::int64_t moving_bytes(const TrainingPlan& plan, std::int64_t own, std::int64_t sum,
                          std::int64_t compute) {
  const PlannedJob& job = plan.job;
  if (!job.shards()) return 0;
  constexpr std::int64_t kBuckets = 4;
  const std::int64_t chunks = plan.stages / job.pipeline;
  const std::int64_t buffers = job.shards_gradients ? 2 : 1;  // both directions, or only receiving
  const std::int64_t blocks = std::min(job.largest_blocks / job.tensor, own);
  const std::int64_t weights = job.shards_weights ? blocks * compute : 0;
  return std::min(kBuckets * chunks * job.bucket_bytes, times(own, sum)) * buffers + weights;
}

// Under memory.offload. `n`: parameters of a rank; `master`, `compute`: bytes of each.
void move_out(Memory& memory, const PlannedJob& job, std::int64_t n, std::int64_t master,
              std::int64_t compute) {
  std::int64_t moved = times(master, job.moments_on_host);  // of each parameter that a rank owns
  if (job.weights_on_host) {
    const std::int64_t weights =
        (job.in_16_bits() ? master : 0) + (job.shards_weights ? compute : 0);
    memory.weights -= among(times(n, weights), job);
    moved += weights;
  }
  memory.on_host = among(times(n, moved), job);
  if (job.device == "cpu") return;  // computes in the mapped file
  // During an update the device holds what three parameters moved. It also holds parts of two
  // blocks' weights, fetched before they are gathered; `largest_blocks` counts two blocks.
  memory.optimizer += among(times(std::min(n, 3 * job.largest_blocks / 2), moved), job);
  if (job.weights_on_host && job.shards_weights)
    memory.moving += among(times(std::min(n, job.largest_blocks / job.tensor), compute), job);
}

Memory memory_of(const TrainingPlan& plan) {
  const PlannedJob& job = plan.job;
  // Ignores norms and biases, which every tensor-parallel rank has: they are small.
  const std::int64_t n = job.held_parameters();
  const std::int64_t master = job.master_bytes(), compute = job.compute_bytes();
  const bool half = job.in_16_bits();
  Memory memory;
  const std::int64_t masters = times(n, master), sums = times(masters, plan.open_sums);
  memory.weights = job.shards_weights ? among(times(n, compute), job) : times(n, compute);
  if (half) memory.weights += among(masters, job);
  memory.gradients = job.shards_gradients ? among(sums, job) : sums;
  memory.optimizer = among(times(masters, job.optimizer_moments - job.moments_on_host), job) +
                     times(masters, job.exchange.kept);
  memory.moving = moving_bytes(plan, n, master, compute);
  move_out(memory, job, n, master, compute);
  const auto live = [&](std::int64_t of_micro) {
    return times(of_micro, std::int64_t{plan.lanes} * plan.live_micro_batches) / plan.stages;
  };
  memory.activations = live(job.activations_per_micro);
  if (job.offloads_activations) {
    memory.activations = times(job.activations_per_micro, plan.lanes);
    memory.in_file = live(job.file_per_micro);
  }
  memory.temporaries =
      static_cast<std::int64_t>(job.temporaries * static_cast<double>(memory.activations));
  // Each lane may hold its micro-batch's gradients until they are added in turn; a graph does.
  if (plan.lanes > 1 || job.graphs) memory.temporaries += times(times(n, compute), plan.lanes);
  memory.program = job.program;
  memory.kernels = kKernels;
  memory.group = group_bytes(job, job.shards_gradients ? 0 : memory.gradients);
  if (job.keeps_residual && job.data_ranks() > 1) memory.gradients += masters;
  memory.text = job.text;
  return memory;
}

// The cost of all-reducing `bytes` among `ranks`, `bucket` bytes at a time.
Communication all_reduce_of(const PlannedJob& job, int ranks, std::size_t bytes,
                            std::size_t bucket) {
  if (job.accelerator != nullptr && job.transport == "nccl")
    return all_reduce_over({1e-5, 1 / job.accelerator->link, 1 / job.accelerator->bandwidth},
                           "its maker's figures of the devices' links", ranks, bytes, bucket);
  return all_reduce_of_buckets(job.tuning ? &*job.tuning : nullptr, job.tuning_path, job.transport,
                               job.algorithm, ranks, bytes, bucket);
}

Communication all_reduce_of_gradients(const PlannedJob& job, int ranks, std::size_t bytes) {
  return all_reduce_of(job, ranks, bytes, static_cast<std::size_t>(job.bucket_bytes));
}

// Gradients go to their owners once per step (ZeRO-1), or with every round of micro-batches.
// Weights come back after the update or, if no rank keeps them whole, for every forward and
// backward pass. Replicas of hybrid reduce their owners' shards among themselves.
Communication sharded_communication_of(const TrainingPlan& plan) {
  const PlannedJob& job = plan.job;
  const auto bytes = static_cast<std::size_t>(job.held_parameters() * job.master_bytes());
  Communication communication = all_reduce_of_gradients(job, job.owners, bytes);
  const double half = communication.seconds / 2;
  const double gather = job.in_16_bits() ? half / 2 : half;
  const double rounds = static_cast<double>(plan.micro_per_rank);
  communication.seconds =
      (job.shards_gradients ? rounds : 1) * half + (job.shards_weights ? 2 * rounds : 1) * gather;
  const int replicas = job.data_ranks() / job.owners;
  if (replicas > 1)
    communication.seconds +=
        all_reduce_of_gradients(job, replicas, bytes / static_cast<std::size_t>(job.owners))
            .seconds;
  return communication;
}

// Gradients are summed once per step, in the type of the master weights. With an exchange, weights
// are reduced instead, once per exchange.
Communication communication_of(const TrainingPlan& plan) {
  const PlannedJob& job = plan.job;
  if (job.shards()) return sharded_communication_of(plan);
  const std::size_t bytes =
      static_cast<std::size_t>(job.held_parameters() * job.master_bytes() *
                               (job.exchange.every > 0 ? job.exchange.moved : 1));
  if (job.exchange.every > 0 && job.exchange.messages > 0)
    return messages_of(job.tuning ? &*job.tuning : nullptr, job.tuning_path, job.transport,
                       job.exchange.messages, bytes);
  return all_reduce_of_gradients(job, job.data_ranks(), bytes);
}

// The host's pinned memory of a rank, with what the rounding of its blocks loses
// (base/pinned_blocks.h): an eighth at most of activations and of many tensors of different sizes. The
// intervals of sharded weights have equal sizes, one for each block of the model.
std::int64_t pinned_bytes(const TrainingPlan& plan) {
  const PlannedJob& job = plan.job;
  const std::int64_t all = plan.memory.in_file + plan.memory.on_host;
  if (!job.weights_on_host || !job.shards_weights) return all + all / 8;
  const auto bytes = [&](std::int64_t parameters) {
    return among(times(parameters, job.compute_bytes()), job);
  };
  const std::int64_t weights = bytes(job.held_parameters());
  std::int64_t interval = bytes(job.largest_blocks / 2 / job.tensor);
  if (interval == 0) interval = std::max<std::int64_t>(weights, 1);
  const auto count = static_cast<std::size_t>((weights + interval - 1) / interval);
  const std::int64_t others = all - weights;
  return others + others / 8 +
         static_cast<std::int64_t>(pinned_blocks(count, static_cast<std::size_t>(interval)));
}

// Each pipeline stage has its part of the layers, and each of their sums is one call. A
// reduce-scatter plus an all-gather costs as much as an all-reduce.
Communication layer_communication_of(const TrainingPlan& plan) {
  const PlannedJob& job = plan.job;
  if (job.tensor == 1 || job.layer_sums == 0) return {};
  const auto bytes = static_cast<std::size_t>(job.layer_sum_bytes);
  Communication sum = all_reduce_of(job, job.tensor, bytes, bytes);
  sum.seconds *= static_cast<double>(plan.micro_per_rank * job.layer_sums) / job.pipeline;
  return sum;
}

// Threads that share a core take turns.
double turns(const PlannedJob& job, int lanes) {
  if (job.device != "cpu") return job.ranks_per_device;
  return std::max(1.0, double(job.ranks_here * lanes * job.kernel_threads) / job.usable_cores);
}

// Micro-batches go through the lanes in rounds; a device computes one after the other.
double compute_seconds_of(const TrainingPlan& plan) {
  const PlannedJob& job = plan.job;
  if (job.simulated) return 0;
  const int at_once = plan.on_device() ? 1 : plan.lanes;
  const std::int64_t rounds = (plan.micro_per_rank + at_once - 1) / at_once;
  return static_cast<double>(rounds) * job.kernel_seconds * (1 + job.share_again) /
         job.model_ranks() / (1 - plan.bubble) * turns(job, plan.lanes);
}

// Each micro-batch's gradient is added to a sum: two numbers are read and one is written. Then the
// owner reads the sum for its norm, and the update reads it, reads and writes the weights and
// moments.
double update_seconds_of(const TrainingPlan& plan) {
  const PlannedJob& job = plan.job;
  if (job.simulated || job.memory_rate <= 0) return 0;
  const double adding = 3.0 * static_cast<double>(plan.micro_per_rank);
  const double updating = (4.0 + 2 * job.optimizer_moments) / job.owners;
  const double bytes =
      static_cast<double>(job.held_parameters() * job.master_bytes()) * (adding + updating);
  return bytes / job.memory_rate * turns(job, 1);
}

// The time of a device's transfers from and to the host's memory. An update fetches and stores at
// once; a pass stores its activations and fetches them later; shards are fetched for both passes.
double host_seconds_of(const TrainingPlan& plan) {
  const PlannedJob& job = plan.job;
  if (job.simulated || job.accelerator == nullptr) return 0;
  std::int64_t of_pass = job.offloads_activations ? 2 * job.file_per_micro : 0;
  if (job.weights_on_host && job.shards_weights)
    of_pass += 2 * among(times(job.held_parameters(), job.compute_bytes()), job);
  const double bytes = static_cast<double>(times(of_pass, plan.micro_per_rank)) +
                       static_cast<double>(plan.memory.on_host);
  return bytes / job.accelerator->host_link * turns(job, 1);
}

// More lanes than micro-batches would idle.
int lanes_of(const PlannedJob& job, std::int64_t micro_per_rank) {
  if (!job.takes_lanes()) return 1;
  return static_cast<int>(std::min<std::int64_t>(job.lanes, micro_per_rank));
}

// Simulates the schedule with passes of equal length, so B takes twice F.
void plan_pipeline(TrainingPlan& plan) {
  if (plan.job.pipeline == 1) return;
  constexpr std::int64_t kMost = 9999;  // the largest number in a schedule
  if (plan.micro_per_rank > kMost)
    throw ConfigError("a step has " + grouped(plan.micro_per_rank) +
                          " micro-batches in each pipeline, and a schedule has at most " +
                          grouped(kMost),
                      {.operation = "plan",
                       .advice = "Raise batch.micro, lower batch.global or use more data-parallel "
                                 "ranks."});
  const auto micro = static_cast<int>(plan.micro_per_rank);
  std::vector<RankPeak> peaks;
  const Schedule schedule =
      load_schedule(plan.job.schedule, plan.job.pipeline, plan.job.chunks, micro, &peaks);
  plan.stages = schedule.stages();
  if (plan.job.blocks > 0) check_stages(plan.job.blocks, plan.stages);
  plan.bubble = simulate(schedule, {}).bubble_rate;
  for (const RankPeak& peak : peaks)
    plan.live_micro_batches = std::max(plan.live_micro_batches, peak.activations);
}

}  // namespace

// Weights and optimizer state, as in a checkpoint. Its activations are at most a rank's.
std::int64_t TrainingPlan::evaluator_bytes() const noexcept {
  return times(job.parameters * job.master_bytes(),
               1 + job.optimizer_moments + job.moments_on_servers) +
         memory.activations + memory.temporaries + memory.runtime() - memory.text;
}

std::int64_t TrainingPlan::host_total() const noexcept {
  const std::int64_t of_rank =
      on_device() ? memory.runtime() + pinned_bytes(*this) + memory.kept() : memory.total();
  // Not every rank has a snapshot of the whole.
  const std::int64_t fewer = times(memory.snapshot, job.ranks_here) - snapshots_on_host(*this);
  return shared() + times(of_rank - shared(), job.ranks_here) - fewer +
         times(memory.program + job.server_bytes, job.servers_here) +
         (job.evaluator ? evaluator_bytes() : 0);
}

TrainingPlan make_plan(const PlannedJob& job) {
  check_arithmetic(job);
  TrainingPlan plan;
  plan.job = job;
  plan.micro_batches = job.batch / job.micro;
  plan.micro_per_rank = (plan.micro_batches + job.data_ranks() - 1) / job.data_ranks();
  if (!job.shares.empty()) plan.micro_per_rank = largest_share(plan.micro_batches, job.shares);
  plan_pipeline(plan);
  const int groups = job.data_ranks() / job.owners;
  // Ranks that train separate copies (exchange) each add a separate tree.
  plan.open_sums =
      job.exchange.every > 0 ? open_sums(plan.micro_per_rank, 1)
      : !job.shares.empty()
          ? open_sums(plan.micro_batches, job.shares)
          : open_sums(plan.micro_batches, job.shards_gradients ? groups : job.data_ranks());
  plan.lanes = lanes_of(job, plan.micro_per_rank);
  plan.memory = memory_of(plan);
  plan.communication = communication_of(plan);
  plan.layers = layer_communication_of(plan);
  if (job.exchange.every > 0) plan.communication.seconds /= job.exchange.every;
  plan.compute_seconds = compute_seconds_of(plan);
  plan.update_seconds = update_seconds_of(plan);
  plan.host_seconds = host_seconds_of(plan);
  plan.state_costs = state_costs_of(plan);
  plan.memory.snapshot = plan.state_costs.snapshot;
  plan.memory.copies = plan.state_costs.copies;
  return plan;
}

}  // namespace trireme::inline v0::plan
