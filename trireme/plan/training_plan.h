// TrainingPlan: a prediction of what a training job needs, computed before anything is started.
//
// Pure arithmetic over what the caller knows (parameters, activations, cores). Throws ConfigError
// with the arithmetic in the message if batch, micro-batch and ranks do not fit together.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "trireme/plan/accelerator.h"
#include "trireme/plan/communication.h"
#include "trireme/plan/state_costs.h"
#include "trireme/plan/tuning.h"

namespace trireme::inline v0::plan {

/// Bytes resident in one rank. Pages shared with other ranks count fully, as in VmHWM.
/// docs/design/007-predicted-memory.md has the measurements. `gradients` holds the open sums of the
/// tree sum: a = max(1, ceil(log2 m)) for m micro-batches per rank (docs/numerics.md). So plain
/// data parallel in bf16 or fp16 needs 14 + 4a bytes per parameter in all. With N owners, ZeRO-1
/// needs 2 + 4a + 12/N, ZeRO-2 2 + (12 + 4A)/N and ZeRO-3 (14 + 4A)/N, where A counts the open sums
/// over all micro-batches of the owners' group.
struct Memory {
  std::int64_t weights = 0, gradients = 0, optimizer = 0, activations = 0;
  std::int64_t temporaries = 0;  // of forward and backward, also those that the allocator retains
  std::int64_t program = 0;      // LibTorch and this program, before anything is allocated
  std::int64_t kernels = 0;      // code and workspaces of the kernels, touched by the first step
  std::int64_t group = 0;    // sockets and other costs of joining; peers' gradients read in place
  std::int64_t text = 0;     // the corpus; one copy for all ranks of a host
  std::int64_t in_file = 0;  // activations in a file or, for a device, on the host; not in total()
  std::int64_t on_host = 0;  // weights and optimizer state there or in a file; not in total()
  std::int64_t snapshot = 0, copies = 0;  // always on the host (state_costs.h)
  std::int64_t moving = 0;  // ZeRO: buckets in transit to owners; ZeRO-3: also two blocks' weights
  std::int64_t runtime() const noexcept { return program + kernels + group + text; }
  /// Memory on the rank's device, if it has one.
  std::int64_t tensors() const noexcept {
    return weights + gradients + optimizer + moving + activations + temporaries;
  }
  std::int64_t kept() const noexcept { return snapshot + copies; }
  std::int64_t total() const noexcept { return tensors() + runtime() + kept(); }
};

/// Settings of ranks that each train a copy of the model and exchange weights periodically
/// (parallel.sync = "local_sgd" and relatives).
struct Exchange {
  std::string about;        // "local SGD: ...", for people
  int every = 0;            // in steps; 0: no exchange, every step reduces gradients
  std::int64_t after = 0;   // synchronous steps before the first exchange
  int moved = 1;            // copies of the weights that are reduced per exchange
  int kept = 0;             // additional copies of the weights that a rank keeps
  int messages = 0;         // sent by a rank per exchange, instead of an all-reduce
  std::string bits = {};    // what the weights' bits depend on; empty: on no layout
  std::string beside = {};  // with servers: what runs beside the ranks, and its memory
  std::string graph = {};   // gossip: properties of the graph, for people
};

struct PlannedJob {
  std::string name;         // "gpt-nano"
  std::string model, data;  // one line each, for people
  std::int64_t parameters = 0;
  std::string precision = "fp32";  // fp64 | fp32 | bf16 | fp16
  int optimizer_moments = 2;       // AdamW: 2, each fp32 (fp64 under fp64)
  // Under memory.offload: how many moments are on the device's host, or in a file of a rank on the
  // CPU, and whether sharded weights and the masters of 16-bit weights are there.
  int moments_on_host = 0;
  bool weights_on_host = false;
  std::int64_t batch = 0, micro = 0;              // samples
  std::vector<std::uint32_t> shares = {};         // weights of the ranks' shares; empty: equal
  std::string sample = "sequence";                // what batch and micro count: "sequence", "image"
  std::int64_t tokens_per_sample = 0, steps = 0;  // tokens: 1 if a sample is one item
  std::int64_t activations_per_micro = 0;         // bytes, under `recompute`
  // memory.offload_activations: file_per_micro is then in a file, and activations_per_micro in the
  // memory of each lane or rank, whatever the number of live micro-batches.
  bool offloads_activations = false;
  std::int64_t file_per_micro = 0;     // bytes
  std::string recompute = "none";      // memory.recompute; for "auto", the choice made
  std::string recompute_table = {};    // for "auto": the table for people; ends with a newline
  double flops_per_micro = 0;          // of forward and backward; 0: not known
  double share_again = 0;              // share of forward and backward that `recompute` repeats
  double kernel_seconds = 0;           // of a micro-batch, forward and backward; 0: not known
  double memory_rate = 0;              // bytes per second of a rank that adds its gradients
  double product_rate = 0;             // operations per second of a large product; 0: not known
  std::string speed_source = {};       // where these three come from, for people
  double temporaries = 0.31;           // memory of both passes relative to activations; measured
  std::int64_t program = 0, text = 0;  // bytes, as in Memory
  std::string sync = "plain";          // parallel.sync
  std::string sharding = {};           // its name for people: "ZeRO-3"
  int owners = 1;                      // ranks that share one copy of the optimizer state
  bool shards_gradients = false;       // they share one copy of the gradients, too
  bool shards_weights = false;         // and one of the weights
  Exchange exchange;
  Keeping keeping;
  int servers = 0;                // parameter servers, processes beside the ranks
  int servers_here = 0;           // of them, on this host
  std::int64_t server_bytes = 0;  // of each one's weights, sums and optimizer state
  int moments_on_servers = 0;     // not in optimizer_moments; checkpoints have them
  bool evaluator = false;         // a process beside the ranks that evaluates checkpoints
  // Parameters of the two largest neighbouring blocks, without the experts of other ranks.
  std::int64_t largest_blocks = 0;
  int pipeline = 1;                    // ranks; each holds about this part of the model
  std::int64_t blocks = 0;             // blocks of the model, for a pipeline; 0: not known
  std::string schedule = "1f1b";       // of the pipeline: a name or a file
  int chunks = 0;                      // stages a rank holds; 0: as few as the schedule can have
  int expert = 1;                      // ranks that share the experts of each mixture
  std::int64_t expert_parameters = 0;  // part of `parameters`
  int context = 1;                     // ranks that share the positions of each sequence
  int tensor = 1;                      // ranks that share the tensors of each layer
  bool sequence = false;               // they also share what is between these tensors
  int layer_sums = 0;                  // all-reduces that they wait for per micro-batch
  std::int64_t layer_sum_bytes = 0;
  /// Ranks that hold one copy of the model together; ranks that compute one micro-batch together.
  int holders() const noexcept { return pipeline * tensor; }
  int together() const noexcept { return expert * context * tensor; }
  int model_ranks() const noexcept { return pipeline * together(); }
  bool shards() const noexcept { return owners > 1; }
  /// Whether a rank can compute several micro-batches at a time. A rank that waits for others in
  /// the middle of a pass cannot (strategy/lane_runner.cc).
  bool takes_lanes() const noexcept {
    return !simulated && model_ranks() == 1 && !(shards() && shards_gradients);
  }
  /// The number of groups that compute separate micro-batches.
  int data_ranks() const noexcept { return ranks / model_ranks(); }
  /// Whether weights have 16 bits, so that there are masters beside them.
  bool in_16_bits() const noexcept { return precision == "bf16" || precision == "fp16"; }
  /// Bytes of a master weight, gradient sum or moment; of a weight that layers compute with.
  std::int64_t master_bytes() const noexcept { return precision == "fp64" ? 8 : 4; }
  std::int64_t compute_bytes() const noexcept { return in_16_bits() ? 2 : master_bytes(); }
  /// The parameters that one rank holds.
  std::int64_t held_parameters() const noexcept {
    const std::int64_t own = parameters - expert_parameters + expert_parameters / expert;
    return (own + holders() - 1) / holders();
  }
  int ranks = 1, lanes = 1, kernel_threads = 1;
  int usable_cores = 1;
  std::string cores_reason, transport, algorithm;
  bool simulated = false;               // ranks are threads of one process on a virtual clock
  std::int64_t bucket_bytes = 4 << 20;  // gradients reduced at a time
  std::string compression = "none";     // comm.compression
  bool keeps_residual = false;          // and a rank keeps the part of its sum that is not sent
  std::optional<Tuning> tuning;         // measurements; without, typical figures
  std::string tuning_path;              // the file of `tuning`
  std::int64_t memory_limit = 0;        // bytes that a rank may use (memory.limit); 0: any
  /// Bytes that this host's processes may use together (host_total()); 0: any. `host_memory_reason`:
  /// "20.1 GB are left on this machine".
  std::int64_t host_memory = 0;
  int ranks_here = 1;
  std::string host_memory_reason = {};
  std::string device = "cpu";  // the kind that the ranks train on
  int ranks_per_device = 1;
  bool graphs = false;                       // train.graphs
  const Accelerator* accelerator = nullptr;  // if the device is a known one
  std::int64_t device_memory = 0;            // bytes of each device; 0: its maker's figure
  /// 0: not known.
  std::int64_t device_bytes() const noexcept {
    return device_memory > 0 || accelerator == nullptr ? device_memory : accelerator->memory;
  }
};

struct TrainingPlan {
  PlannedJob job;
  std::int64_t micro_batches = 0;   // in a global batch
  std::int64_t micro_per_rank = 0;  // of the rank with most
  int open_sums = 1;                // a, or A
  int stages = 1;                   // of the pipeline
  int live_micro_batches = 1;       // most micro-batches whose activations a pipeline rank holds
  double bubble = 0;                // share of time that a pipeline rank waits, if B takes twice F
  int lanes = 1;                    // lanes in use: at most micro_per_rank
  Memory memory;                    // of the rank with most
  /// Per step; the cost of an exchange is divided among its steps. If ranks hold shards, a
  /// reduce-scatter and an all-gather each count as half an all-reduce.
  Communication communication;
  /// Per step, of tensor-parallel ranks; nothing hides it.
  Communication layers;
  StateCosts state_costs;
  /// Forward and backward of the rank with most; includes a pipeline's wait and the turns of
  /// threads that share cores. 0: not known.
  double compute_seconds = 0;
  /// Adding gradients, their norm and the update; 0: not known.
  double update_seconds = 0;
  /// The moves of memory.offload and memory.offload_activations between a device and its host.
  double host_seconds = 0;
  /// One after the other: the gain of overlap is not known beforehand. 0: not known.
  double step_seconds() const noexcept {
    if (compute_seconds <= 0) return 0;
    return compute_seconds + update_seconds + host_seconds + communication.seconds + layers.seconds;
  }
  /// Memory that the ranks of one host share: the text. Simulated ranks, which are threads, share
  /// all runtime memory.
  std::int64_t shared() const noexcept { return job.simulated ? memory.runtime() : memory.text; }
  /// Memory of all ranks of this host, and of the servers and the evaluator there, together.
  std::int64_t host_total() const noexcept;
  /// The memory of the process that evaluates checkpoints beside the ranks.
  std::int64_t evaluator_bytes() const noexcept;
  bool on_device() const noexcept { return job.device != "cpu"; }
  /// Memory of the rank with most, where its tensors are: what memory.limit bounds.
  std::int64_t rank_bytes() const noexcept {
    return on_device() ? memory.tensors() : memory.total();
  }
  /// Whether the prediction is within the job's, the device's or the host's memory, if limited.
  bool keeps_to_limit() const noexcept {
    return job.memory_limit == 0 || rank_bytes() <= job.memory_limit;
  }
  bool fits_device() const noexcept {
    return job.device_bytes() == 0 || rank_bytes() <= job.device_bytes() / job.ranks_per_device;
  }
  bool fits_host() const noexcept {
    return job.host_memory == 0 || host_total() <= job.host_memory;
  }
  bool fits() const noexcept { return keeps_to_limit() && fits_device() && fits_host(); }
  std::int64_t tokens_per_step() const noexcept { return job.batch * job.tokens_per_sample; }
};

/// For a plan that does not fit the host: "2 ranks are predicted to take 693,574 MB together, and
/// 20.1 GB are left on this machine".
std::string host_refusal(const TrainingPlan& plan);
/// host_refusal() for a device's memory.
std::string device_refusal(const TrainingPlan& plan);

TrainingPlan make_plan(const PlannedJob& job);
/// The lines printed before the first step; ends with a newline.
std::string explain(const TrainingPlan& plan);

}  // namespace trireme::inline v0::plan
