// TrainingPlan: what a training job is going to take, worked out before anything is started.
//
// Pure arithmetic over what the caller knows (parameters, activations, cores). Throws ConfigError
// with the arithmetic in its sentence where batch, micro-batch and ranks do not fit together.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "trireme/plan/communication.h"
#include "trireme/plan/tuning.h"

namespace trireme {
inline namespace v0 {
namespace plan {

/// Bytes resident in one rank, pages that it shares with others counted whole (as VmHWM does; what
/// ranks share is said). docs/design/007-predicted-memory.md has the measurements. `gradients`
/// holds the open sums of the tree: a = max(1, ceil(log2 m)) of them for m micro-batches a rank
/// (NUMERICS.md), so plain data parallel in bf16 or fp16 is (14 + 4a) bytes a parameter in all;
/// with N owners ZeRO-1 is 2 + 4a + 12/N, ZeRO-2 is 2 + (12 + 4A)/N and ZeRO-3 (14 + 4A)/N, where A
/// counts the open sums over all micro-batches of the owners' group.
struct Memory {
  std::int64_t weights = 0, gradients = 0, optimizer = 0, activations = 0;
  std::int64_t temporaries = 0;  // of forward and backward, and what the allocator keeps of them
  std::int64_t program = 0;      // LibTorch and this program, before anything is allocated
  std::int64_t kernels = 0;      // code and workspaces of the kernels, touched by the first step
  std::int64_t group = 0;    // joining, sockets, boards; and the peers' gradients, read in place
  std::int64_t text = 0;     // the corpus; one copy for all ranks of a host
  std::int64_t in_file = 0;  // beyond memory: activations in a file (not in total())
  std::int64_t moving = 0;   // ZeRO: buckets on their way to owners; ZeRO-3: two blocks' weights
  std::int64_t runtime() const noexcept { return program + kernels + group + text; }
  std::int64_t total() const noexcept {
    return weights + gradients + optimizer + moving + activations + temporaries + runtime();
  }
};

/// Ranks that each train a copy of the model and exchange weights now and then (parallel.sync =
/// "local_sgd" and relatives).
struct Exchange {
  std::string about;       // "local SGD: ...", for people
  int every = 0;           // steps; 0: there is none, gradients are reduced in every step
  std::int64_t after = 0;  // synchronous steps before
  int moved = 1;           // copies of the weights that are reduced at a time
  int kept = 0;            // further copies of them that a rank keeps
  int messages = 0;        // gossip: that a rank sends at a time, in the place of an all-reduce
  std::string graph = {};  // gossip: its facts, for people
};

struct Job {
  std::string name;         // "gpt-nano"
  std::string model, data;  // one line each, for people
  std::int64_t parameters = 0;
  std::string precision = "fp32";                 // fp64 | fp32 | bf16 | fp16
  int optimizer_moments = 2;                      // AdamW: 2, each fp32 (fp64 under fp64)
  std::int64_t batch = 0, micro = 0;              // samples
  std::string sample = "sequence";                // what batch and micro count: "sequence", "image"
  std::int64_t tokens_per_sample = 0, steps = 0;  // 1 where a sample is one item
  std::int64_t activations_per_micro = 0;         // bytes, under `recompute`
  // memory.offload_activations: of a micro-batch, beside what activations_per_micro says is in
  // memory of a lane or rank, whatever the number of micro-batches in a pipeline.
  bool offloads_activations = false;
  std::int64_t file_per_micro = 0;   // bytes
  std::string recompute = "none";    // memory.recompute; of "auto", what it came to
  std::string recompute_table = {};  // of "auto", for people; ends with a newline
  double flops_per_micro = 0;        // of its forward and backward pass; 0: not known
  double share_again = 0;            // of them, computed a second time under `recompute`
  double flop_rate = 0;  // operations a second of kernel_threads threads' products; 0: not measured
  double temporaries = 0.31;           // of forward and backward, over the activations; as measured
  std::int64_t program = 0, text = 0;  // bytes, as in Memory
  std::string sync = "plain";          // zero1 | zero2 | zero3 | hybrid
  int owners = 1;                      // ranks that share one copy
  Exchange exchange;
  // Parameters of the two largest neighbouring blocks, less the experts of other ranks.
  std::int64_t largest_blocks = 0;
  int pipeline = 1;                    // of the ranks; each holds about this part of the model
  std::int64_t blocks = 0;             // that a pipeline can be cut between; 0: not known
  std::string schedule = "1f1b";       // of a pipeline: by name, or a file's
  int chunks = 0;                      // stages a rank holds; 0: as few as the schedule can have
  int expert = 1;                      // of the ranks; they share the experts of each mixture
  std::int64_t expert_parameters = 0;  // of `parameters`
  int context = 1;                     // of the ranks; they share the positions of each sequence
  int tensor = 1;                      // of the ranks; they share the tensors of each layer
  bool sequence = false;               // and what lies between those that are cut
  int layer_sums = 0;                  // that they wait for in a micro-batch, each of
  std::int64_t layer_sum_bytes = 0;
  /// Ranks that hold one copy of the model together, and that compute one micro-batch together.
  int holders() const noexcept { return pipeline * tensor; }
  int together() const noexcept { return expert * context * tensor; }
  int model_ranks() const noexcept { return pipeline * together(); }
  /// Groups of ranks that each compute micro-batches of their own.
  int data_ranks() const noexcept { return ranks / model_ranks(); }
  /// Of a rank: its part of the model.
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
  std::optional<Tuning> tuning;         // as measured here; else typical figures
  std::string tuning_path;              // of that table
  std::int64_t memory_limit = 0;        // bytes that a rank may take (memory.limit); 0: any
  /// Bytes that the `ranks_here` ranks of this host may take together; 0: any.
  /// `host_memory_reason`: "20.1 GB are left on this machine".
  std::int64_t host_memory = 0;
  int ranks_here = 1;
  std::string host_memory_reason = {};
};

struct TrainingPlan {
  Job job;
  std::int64_t micro_batches = 0;   // in a global batch
  std::int64_t micro_per_rank = 0;  // of the rank with most
  int open_sums = 1;                // a, or A
  int stages = 1;                   // of the pipeline
  int live_micro_batches = 1;       // whose activations a rank of it holds at a time, at most
  double bubble = 0;  // of the pipeline, passes of equal length: the share that a rank waits
  int lanes = 1;      // in use: no more than micro_per_rank, 1 in a simulation
  Memory memory;      // of the rank with most
  /// Of a step: an exchange's is divided among its steps. Where ranks hold parts, reduce-scatters
  /// and all-gathers, each taken as half an all-reduce.
  Communication communication;
  /// Of tensor-parallel ranks in a step, which nothing hides.
  Communication layers;
  /// Of the rank with most: its matrix products alone, at job.flop_rate on cores of their own (a
  /// pipeline's wait included); 0: not known.
  double compute_seconds = 0;
  /// Products, then communication, nothing hidden: what other kernels add and what overlap saves is
  /// not known beforehand. 0: not known.
  double step_seconds() const noexcept {
    return compute_seconds > 0 ? compute_seconds + communication.seconds + layers.seconds : 0;
  }
  /// What ranks of one host have once: the text; simulated ranks, which are threads, all but what
  /// they compute with.
  std::int64_t shared() const noexcept {
    return job.simulated ? memory.runtime() : memory.text;
  }
  /// Of the ranks of this host together.
  std::int64_t host_total() const noexcept;
  /// Where the job or the host has a limit of memory, the prediction keeps to it.
  bool keeps_to_limit() const noexcept {
    return job.memory_limit == 0 || memory.total() <= job.memory_limit;
  }
  bool fits_host() const noexcept {
    return job.host_memory == 0 || host_total() <= job.host_memory;
  }
  bool fits() const noexcept { return keeps_to_limit() && fits_host(); }
  std::int64_t tokens_per_step() const noexcept { return job.batch * job.tokens_per_sample; }
};

/// "2 ranks are predicted to take 693,574 MB together, and 20.1 GB are left on this machine"; of a
/// plan that does not fit the host.
std::string host_refusal(const TrainingPlan& plan);

TrainingPlan make_plan(const Job& job);
/// The few lines that are printed before the first step; ends with a newline.
std::string explain(const TrainingPlan& plan);

}  // namespace plan
}  // namespace v0
}  // namespace trireme
