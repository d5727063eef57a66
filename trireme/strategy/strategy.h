// Strategy: trains a model given as blocks on this job's ranks (docs/api.md).
//
// step() runs forward and backward over this rank's micro-batches, reduces gradients while backward
// still runs, votes, clips, updates and publishes. All ranks call it with the same step. A step
// that is refused (NaN, an exception on a rank) throws StepRefused on every rank. Where ranks share
// layers (tensor, context, expert), an exception, or a batch that is not a rank's share, is thrown at
// once and ends the job's communication. Not thread safe.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/buffer.h"
#include "trireme/base/clock.h"
#include "trireme/kernel/optimizers/options.h"
#include "trireme/models/block.h"
#include "trireme/sync/options.h"
#include "trireme/tensor/batch.h"
#include "trireme/tensor/state.h"

namespace trireme::inline v0 {

class Job;
namespace optim {
class Optimizer;
}
namespace parallel {
struct StrategyContext;
}

/// Maps the last block's value and the micro-batch to the loss summed over micro.count items: a
/// scalar under autograd.
using Loss = std::function<at::Tensor(const models::Value& output, const MicroBatch& micro)>;

/// Token cross-entropy, summed over micro.field("targets"); the output is logits [b, T, V].
Loss token_loss();

struct StrategyOptions {
  /// The device of this rank's parameters, gradients and optimizer state. Blocks are built on the
  /// CPU and moved there; micro-batches follow. Refuses options without device code (docs/gpu.md).
  Device device = {};
  /// plain | zero1 | zero2 | zero3 | hybrid; local_sgd | diloco | easgd | gossip; server
  std::string sync = "plain";
  int pipeline = 1, data = 0;  // data 0: the ranks that are left
  /// Ranks that share the positions of every sequence (layers/group_layers.h), for models whose
  /// blocks get attention from the LayerFactory (GPT, BERT). Twice this number divides the sequence
  /// length. Weights agree with one process's within a tolerance, as for `tensor`.
  int context = 1;
  /// Consecutive data-parallel ranks that share the experts of each mixture (models/experts.h).
  /// Each computes its share of a micro-batch's sequences. The number divides these sequences, and
  /// data x shard. Each rank has everything else whole. Tolerance as for `context`.
  int expert = 1;
  /// Ranks that share the tensors of each layer, for models whose blocks get layers from the
  /// LayerFactory (GPT, BERT, MLP). Weights agree with one process's within a tolerance
  /// (docs/numerics.md), whatever other options are chosen that change no bit.
  int tensor = 1;
  /// With `tensor`: values between the cut layers are cut along the sequence, which takes less
  /// memory (layers/tensor/layers.h). The sequence length is a multiple of `tensor`.
  bool sequence = false;
  /// Pipeline schedule: a name (`trireme show schedule` lists them), or a file. Changes no bit.
  std::string schedule = "1f1b";
  int chunks = 0;  // stages per rank of the pipeline; 0: as few as the schedule allows
  /// Returns a micro-batch to measure blocks with, so that stages take about equal times (called on
  /// rank 0 only). Empty: all stages have about the same number of blocks. Changes no bit.
  std::function<MicroBatch()> example = {};
  int shard = 0;  // hybrid: consecutive ranks that share one copy; 0: those of a host
  std::string precision = "fp32";  // fp64 | fp32 | bf16 | fp16
  /// For fp16 only; none: dynamic, from 65,536 (strategy/loss_scale.h).
  std::optional<LossScaleOptions> loss_scale = {};
  double clip = 0;  // global gradient norm; 0 = off
  std::uint64_t seed = 1;
  std::int64_t bucket_bytes = 4 << 20;
  /// Reduce gradients while backward still runs. False, under plain: reduce after backward, to
  /// measure the difference. Changes no bit.
  bool overlap = true;
  /// Gradients on the wire: none | auto | bf16 | f16 | topk:R | randomk:R | powersgd:RANK | onebit
  /// (sync/compression). Any but none ends the guarantee of equal bits on any layout.
  std::string compression = "none";
  /// A folder for a mapped file that holds optimizer state, weight averages, master weights that
  /// differ from the weights, and under zero3 and hybrid this rank's shards of the weights. On a
  /// device "host": the host's memory holds them (optim/state_store.h, sync/gathers/unit_gather.h),
  /// but under local_sgd and its relatives only optimizer state. Empty: off. Changes no bit.
  std::string offload = {};
  /// Activations that backward computes again instead of keeping them (memory/recompute.h): none |
  /// selective | full | every-K, or a list with one of the first three for each block, such as
  /// "full*3,none*2". Changes no bit.
  std::string recompute = "none";
  /// A folder for a mapped file, one per lane or stage, that holds all blocks' activations but the
  /// last one's; those of at most two blocks are in memory at a time. On a device "host": pinned
  /// memory of the host holds them (memory/activation_store.h). Empty: off. Changes no bit.
  std::string offload_activations = {};
  /// Threads of every kernel; results depend on it (docs/numerics.md). 0: as the process has, or 1.
  int kernel_threads = 0;
  /// Micro-batches of this rank that are computed at once, each by a thread with its own
  /// `kernel_threads`; changes no bit. The loss is then called from several threads. A model that
  /// draws from LibTorch's default generator, or has buffers other than batch norm's, runs with one
  /// lane (StrategyNotes::lanes).
  int lanes = 1;
  /// On a device: the passes of a micro-batch are recorded once and replayed by one call (a CUDA
  /// graph; pipeline/pass_graphs.h), for models so small that the host cannot launch their kernels
  /// fast enough. One copy of a micro-batch's gradients and activations stays in memory; sums over
  /// ranks do not overlap with backward. The loss must not depend on the micro-batch's index or
  /// count. Not with lanes, shards of weights, or models that are cut over ranks. One thread makes,
  /// uses and destroys the Strategy. Changes no bit.
  bool graphs = false;
  /// How many of a batch's micro-batches each rank computes, under plain and zero1: equal | auto |
  /// weights such as "3:2:1" (strategy/shares.h). With auto, ranks measure their speed and change
  /// shares between steps: batches() follows; make fixed_batches() again. Changes no bit.
  std::string shares = "equal";
  /// For local_sgd, diloco, easgd and gossip, whose results depend on the number of ranks.
  LocalOptions local = {};
  /// For server.
  ServerOptions server = {};
  /// Decay of an exponential moving average of the weights, kept beside them (use_average()) and
  /// saved with them; in [0, 1), 0 = none. Changes no bit of the weights. `ema`, `outliers` and
  /// `noise_scale` need a common model after every step: local_sgd and its relatives refuse them.
  double ema = 0;
  /// Skips steps with an outlying loss or gradient norm (strategy/outlier_filter.h).
  OutlierOptions outliers = {};
  /// The most steps that all ranks may skip because a loss, a gradient or a sum of gradients is not
  /// finite. The next one is refused (StepRefused, exit code 21). Checkpoints save the count.
  std::int64_t skip_not_finite = 0;
  /// Measures the gradient noise scale (strategy/gradient_noise.h); needs two micro-batches a step.
  bool noise_scale = false;
};

/// From the next step on, each rank computes another number of micro-batches
/// (StrategyOptions::shares = "auto").
struct ShareChange {
  std::vector<std::uint32_t> shares = {};            // micro-batches of each rank in a full batch
  std::vector<double> micro_seconds = {};            // measured, of each rank
  double step_seconds = 0, step_seconds_before = 0;  // expected, of the slowest rank's passes
  /// The arithmetic, in one line.
  std::string text() const;
};

struct StepResult {
  double loss = 0;  // global mean
  /// Before clipping; none where clip, outliers and noise_scale are off. For local-step strategies:
  /// root mean square over ranks; each rank clips by its own norm.
  std::optional<double> gradient_norm = {};
  std::int64_t count = 0;  // global tokens or samples
  int stop_signal = 0;     // != 0: every rank learned in this vote that the job is to stop
  std::optional<Duration> communication = {};  // time this rank was blocked on communication
  Duration total{};
  std::optional<double> learning_rate = {};  // of this update
  std::string skipped = {};  // why this step was skipped on all ranks; empty: it was not
  /// Steps skipped so far, this one included, for any reason but an overflow in fp16, which a
  /// dynamic loss scale expects now and then.
  std::int64_t skipped_steps = 0;
  std::int64_t overflows = 0;              // steps skipped so far for an overflow
  std::optional<double> loss_scale = {};   // of the next step; fp16 only
  std::optional<double> noise_scale = {};  // in items; none: off, or not known yet
  /// The rank that was last to come to the vote, and how far behind the others' median it was, by
  /// the time that it spent outside of waits; -1: there is one rank.
  int last_rank = -1;
  Duration behind{};
  std::optional<ShareChange> share_change = {};
};

/// Notes on a Strategy, for reports. A text is empty if there is nothing to tell.
struct StrategyNotes {
  /// On rank 0 of a pipeline: its stages, their measured costs and the imbalance.
  std::string stages = {};
  /// Each server's part of the parameters, a line each.
  std::string servers = {};
  /// Lanes in use, and why they are fewer than requested. Known after the first step, which shows
  /// whether a block draws from the default generator.
  int num_lanes = 1;
  std::string lanes = {};
  /// With StrategyOptions::graphs: how many passes were recorded and replayed so far.
  std::string graphs = {};
};

class Strategy final : public Saveable, public StepVoter {
 public:
  Strategy(Job& job, const models::Blocks& model, StrategyOptions options,
           const OptimizerOptions& optimizer);
  /// The same without a Job (sync/strategy_context.h), for ranks of the simulated network.
  Strategy(const parallel::StrategyContext& env, const models::Blocks& model,
           StrategyOptions options, const OptimizerOptions& optimizer);
  /// With your own optimizer; not with parallel.sync = server.
  Strategy(const parallel::StrategyContext& env, const models::Blocks& model,
           StrategyOptions options, std::unique_ptr<optim::Optimizer> optimizer);
  /// Announces to the other ranks that this one's loop has ended; one that is still in a step gets
  /// UnevenInput naming this rank.
  ~Strategy() override;

  /// Throws StepRefused (nothing was applied), UnevenInput, or the communicator's error. If numbers
  /// that are not finite make the ranks skip the step, `skipped` says why and the loss is NaN.
  StepResult step(const Batch& batch, const Loss& loss);
  /// StepResult::stop_signal of the last step, or the signal that ended a later evaluate().
  int stop_signal() const noexcept override;
  bool all_ranks_return() const override { return true; }
  std::optional<std::int64_t> steps_ended() const override;
  /// Forward only, no dropout: the mean loss over these batches, the same bits on every rank. If
  /// ranks train separate copies (local_sgd ...), uses their common model; the copies stay.
  double evaluate(const std::vector<Batch>& batches, const Loss& loss);
  /// The same for several sums in one pass, each divided by the count: loss, correct answers, ...
  /// `until_stop`: ranks that are asked to stop agree on it after the batch that they are in. Then
  /// the result is empty, and stop_signal() is the signal.
  std::vector<double> evaluate(const std::vector<Batch>& batches, const std::vector<Loss>& sums,
                               bool until_stop = false);
  /// Forward only: the last block's value (generation). Collective unless has_whole_weights(): all
  /// ranks call it with micro-batches of one shape. If ranks train copies, uses this rank's.
  models::Value infer(const MicroBatch& micro);

  void set_learning_rate(double learning_rate);
  /// With StrategyOptions::ema, else without effect: from now on evaluate(), infer() and
  /// weights_hash() use the averaged weights, or the trained ones again, bit for bit. No step() and
  /// no state() while it is on (TRIREME_CHECK). Collective where ranks hold shards.
  void use_average(bool on);
  /// SHA-256 (hex) over all weights in name order: name, shape, type, bytes. Collective where ranks
  /// hold shards of the weights, or separate copies (then of the weights that evaluate() uses).
  std::string weights_hash();
  /// False if ranks hold parts of the weights (zero3, hybrid, pipeline, tensor, expert) or of
  /// sequences (context): then infer() is collective.
  bool has_whole_weights() const;
  std::int64_t num_parameters() const;
  /// Updates since the start of the training. With servers and workers on their own: those by all
  /// workers, divided by the number of workers, as of the last step.
  std::int64_t steps_done() const;
  /// The servers' counts of their workers' pushes (ps/figures.h reads them). Empty without servers.
  std::string server_figures();
  StrategyNotes notes() const;
  /// Bytes of the gradient sums' arenas on this rank.
  std::int64_t gradient_bytes() const;
  /// Bytes of this rank that StrategyOptions::offload and offload_activations moved to files or to
  /// the host, without those of lanes.
  std::int64_t offloaded_bytes() const;

  /// Master weights under their own names ("layer.0.mlp.up.weight"), optimizer state under
  /// "optimizer/NAME.exp_avg", averages under "ema/NAME", what compression keeps under
  /// "compression/", buffers under their names. Collective if ranks train separate copies: these
  /// become equal first, and training goes on from them.
  std::vector<NamedShard> state() override;
  std::vector<NamedShard> own_state() override;
  bool can_go_on(const std::string& metadata) override;
  std::string metadata() const override;
  void restored(const std::string& metadata) override;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// `options` with the settings of `name` ("MirroredStrategy", "FSDP", "zero3"; `trireme show
/// strategies` lists them). ConfigError for an unknown name, for an option that differs from its
/// default and contradicts the name, and if this build cannot run it.
StrategyOptions strategy_options(std::string_view name, StrategyOptions options = {});

/// A Strategy with these options. ConfigError also if the name does not fit the ranks and hosts.
std::unique_ptr<Strategy> strategy(std::string_view name, Job& job, const models::Blocks& model,
                                   StrategyOptions options, const OptimizerOptions& optimizer);

}  // namespace trireme::inline v0
