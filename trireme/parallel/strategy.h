// Strategy: door (b) of API.md. A model given as blocks, trained on this job's ranks.
//
// step() runs forward and backward over this rank's micro-batches, reduces the gradients while
// backward still runs, votes, clips, updates and publishes. All ranks call it with the same step.
// Not thread safe. A refused step (NaN, a rank's exception) throws StepRefused on every rank.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trireme/job/job.h"
#include "trireme/job/step_voter.h"
#include "trireme/models/block.h"
#include "trireme/optim/optimizer.h"
#include "trireme/parallel/data/local_options.h"
#include "trireme/parallel/loss_scale.h"
#include "trireme/parallel/outlier_filter.h"
#include "trireme/tensor/batch.h"
#include "trireme/tensor/state.h"

namespace trireme {
inline namespace v0 {
namespace parallel {
struct Seat;
}

/// The last block's value and the micro-batch -> the summed loss (a scalar under autograd) over
/// micro.count items.
using Loss = std::function<at::Tensor(const models::Value& output, const MicroBatch& micro)>;

/// Token cross-entropy, summed over micro.field("targets"); the output is logits [b, T, V].
Loss token_loss();

struct StrategyOptions {
  /// zero1 | zero2 | zero3 | hybrid; local_sgd | diloco | easgd | gossip
  std::string sync = "plain";
  int pipeline = 1, data = 0;  // data 0 = what is left
  /// Ranks that share the positions of every sequence (parallel/group_layers.h), of models whose
  /// blocks ask their LayerFactory for attention (GPT, BERT). Twice as many divide the sequence
  /// length. As `tensor`: within a tolerance.
  int context = 1;
  /// Ranks that share the experts of each mixture (models/experts.h), each with its own of a
  /// micro-batch's sequences, which it divides, as it divides data x shard ranks, of which groups
  /// are consecutive. Everything else is whole on each of them. As `context` in what it changes.
  int expert = 1;
  /// Ranks that share the tensors of each layer, where the model's blocks ask their LayerFactory
  /// for them (GPT, BERT, MLP). Weights agree with one process's within a tolerance (NUMERICS.md);
  /// what else is chosen here changes no bit of them.
  int tensor = 1;
  /// With it: what lies between the cut layers is cut along the sequence, which takes less memory
  /// (parallel/tensor/layers.h). The sequence length is a multiple of `tensor`.
  bool sequence = false;
  /// Of a pipeline: a name (`trireme show schedule` lists them), or a file. Changes no bit.
  std::string schedule = "1f1b";
  int chunks = 0;  // stages that a rank of the pipeline holds; 0: as few as the schedule can have
  /// A micro-batch to measure blocks with, so that stages take about equal times (asked on rank 0
  /// alone). Empty: every stage has as many blocks. Changes no bit.
  std::function<MicroBatch()> example = {};
  int shard = 0;  // hybrid: consecutive ranks that share one copy; 0 = those of a host
  std::string precision = "fp32";  // fp64 | fp32 | bf16 | fp16
  /// Of fp16 alone; none: dynamic, from 65,536 (parallel/loss_scale.h).
  std::optional<LossScaleOptions> loss_scale = {};
  double clip = 0;  // global gradient norm; 0 = off
  std::uint64_t seed = 1;
  std::int64_t bucket_bytes = 4 << 20;
  /// Reduce gradients while backward still runs. False, under plain: after it, to see what that is
  /// worth. Changes no bit.
  bool overlap = true;
  /// Of gradients on the wire: none | auto | bf16 | f16 | topk:R | randomk:R | powersgd:RANK |
  /// onebit (parallel/data/compression). Any but none ends the promise of equal bits on any layout.
  std::string compression = "none";
  /// A folder: optimizer state, master weights that are not the weights themselves, and a rank's
  /// part of weights under zero3 and hybrid lie in a mapped file there. Empty: in memory. Changes
  /// no bit.
  std::string offload = {};
  /// none | selective | full | every-K, or a list with one of the first three for each block, such
  /// as "full*3,none*2": activations that are computed again in backward instead of kept
  /// (memory/recompute.h). Changes no bit.
  std::string recompute = "none";
  /// A folder: what blocks save for backward, but for the last block's, lies in a mapped file
  /// there, two blocks' at a time in memory (memory/activation_file.h); one file a lane or stage.
  /// Empty: in memory. Changes no bit.
  std::string offload_activations = {};
  /// Threads of every kernel, part of the identity (NUMERICS.md). 0: as the process was set up,
  /// or 1.
  int kernel_threads = 0;
  /// Micro-batches of this rank that are computed at once, each by a thread with `kernel_threads`
  /// of its own; changes no bit. The loss is then called from several threads. A model that draws
  /// from LibTorch's default generator, or has buffers other than batch norm's, runs with one
  /// (Strategy::lanes_note()).
  int lanes = 1;
  /// Of local_sgd, diloco, easgd and gossip, each of which ends the promise of equal bits on any
  /// number of ranks.
  LocalOptions local = {};
  /// Decay of an exponential moving average of the weights, kept beside them (use_average()), saved
  /// with them; in [0, 1), 0 = none. Changes no bit of the weights. This and the two below are not
  /// for local_sgd and its relatives, where there is no one model after every step.
  double ema = 0;
  /// Steps that are left out for their loss or gradient norm (parallel/outlier_filter.h).
  OutlierOptions outliers = {};
  /// Steps of a training that may be left out, on all ranks, because a loss, a gradient or a
  /// gradient's sum holds a NaN or an infinity; the one after the last of them is refused
  /// (StepRefused, exit code 21). Saved and counted on.
  std::int64_t skip_not_finite = 0;
  /// Measures the gradient noise scale (parallel/gradient_noise.h); needs two micro-batches a step.
  bool noise_scale = false;
};

struct StepResult {
  double loss = 0;  // global mean
  /// Before clipping; none where clip, outliers and noise_scale are off. For local-step strategies:
  /// root mean square over ranks; each rank clips by its own norm.
  std::optional<double> gradient_norm = {};
  std::int64_t count = 0;  // global tokens or samples
  int stop_signal = 0;     // != 0: every rank learned in this step's vote that the job is to stop
  std::optional<Duration> communication = {};  // time this rank was blocked on communication
  Duration total{};
  std::optional<double> learning_rate = {};  // that the weights were updated with
  std::string skipped = {};  // why this step was left out on all ranks; empty: it was not
  /// Left out so far, this one among them, for any reason but an overflow in fp16, which a dynamic
  /// loss scale expects now and then.
  std::int64_t skipped_steps = 0;
  std::int64_t overflows = 0;              // left out so far for that
  std::optional<double> loss_scale = {};   // that the next step begins with; none but in fp16
  std::optional<double> noise_scale = {};  // in items; none: off, or not to be told yet
};

class Strategy final : public Saveable, public StepVoter {
 public:
  Strategy(Job& job, const models::Blocks& model, StrategyOptions options,
           const OptimizerOptions& optimizer);
  /// The same without a Job (parallel/seat.h), for ranks of the simulated network.
  Strategy(const parallel::Seat& seat, const models::Blocks& model, StrategyOptions options,
           std::unique_ptr<optim::Optimizer> optimizer);
  /// Tells the other ranks that this one's loop has ended; one that is still in a step gets
  /// UnevenInput naming this rank.
  ~Strategy() override;

  /// Throws StepRefused (nothing was applied), UnevenInput, or the communicator's error. A step
  /// that is left out because of numbers that are not finite says why in `skipped`; its loss is a
  /// NaN.
  StepResult step(const Batch& batch, const Loss& loss);
  /// StepResult::stop_signal of the last step.
  int stop_signal() const noexcept override;
  bool all_ranks_return() const override { return true; }
  /// Forward only, no dropout: the mean loss over these batches, the same bits on every rank. Where
  /// ranks train copies of their own (local_sgd …), of the model that they train together; the
  /// copies stay as they are.
  double evaluate(const std::vector<Batch>& batches, const Loss& loss);
  /// The same for several sums in one pass, each divided by the count: loss, right answers, ...
  std::vector<double> evaluate(const std::vector<Batch>& batches, const std::vector<Loss>& sums);
  /// Forward only: the last block's value (generation). Under zero3 and hybrid, in a pipeline and
  /// with tensor, context or expert parallelism, where no rank has a full copy, collective: all
  /// ranks call it with micro-batches of one shape. Where ranks train copies of their own, by this
  /// rank's.
  models::Value infer(const MicroBatch& micro);

  void set_learning_rate(double learning_rate);
  /// With StrategyOptions::ema: from now on evaluate(), infer() and weights_hash() see the averaged
  /// weights, or the trained ones again, bit for bit. Between steps; no step() and no state() while
  /// it is on (TRIREME_CHECK). Collective where ranks hold parts. Nothing without ema.
  void use_average(bool on);
  /// SHA-256 over all weights: name, shape, type, bytes, in name order. Hex. Collective where
  /// ranks hold parts of the weights, or copies of their own (then of what evaluate() sees).
  std::string weights_hash();
  /// False where ranks hold parts of the weights (zero3, hybrid, pipeline, tensor, expert), or of
  /// sequences (context): infer() is collective.
  bool has_whole_weights() const;
  std::int64_t num_parameters() const;
  /// Lanes in use, and why they are fewer than asked for (empty: they are not). Known after the
  /// first step: a block shows in it whether it draws from the default generator.
  int lanes() const;
  std::string lanes_note() const;
  /// Of a pipeline, on rank 0: its stages, what was measured of them and the imbalance; else empty.
  std::string stages_note() const;
  /// Bytes of the gradient sums' arenas on this rank.
  std::int64_t gradient_bytes() const;
  /// Bytes of this rank that lie in the mapped files of StrategyOptions::offload and
  /// offload_activations, but for those of lanes.
  std::int64_t offloaded_bytes() const;

  /// Master weights under their own names ("layer.0.mlp.up.weight"), optimizer state under
  /// "optimizer/NAME.exp_avg", averages under "ema/NAME", buffers under their names. Where ranks
  /// train copies of their own, collective: they come together first, and all go on from there.
  std::vector<NamedShard> state() override;
  std::string metadata() const override;
  void restored(const std::string& metadata) override;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace v0
}  // namespace trireme
