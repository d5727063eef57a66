// DataParallel: door (a) of API.md. Your own module, loop and torch::optim optimizer.
//
// One backward() is one micro-batch; step() replaces `adam.step(); adam.zero_grad();`. On the last
// micro-batch of the global batch (the Sampler of the same Job says where that is; without one,
// each step() ends a batch of one micro-batch per rank) it finishes the buckets, votes, applies,
// zeroes and returns true; before, it only accumulates and returns false.
//
// LibTorch's default generator is seeded by (its seed on rank 0, batch, micro-batch) before each
// micro-batch, so that dropout does not depend on the rank count. Running statistics of batch norms
// are captured per micro-batch and folded in index order after the vote; a batch norm may run once
// per micro-batch. Other buffers that forward() changes stay each rank's own. Not thread safe.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trireme/job/job.h"
#include "trireme/job/step_voter.h"
#include "trireme/tensor/state.h"

namespace torch::nn {
class Module;
}
namespace torch::optim {
class Optimizer;
}

namespace trireme {
inline namespace v0 {
namespace parallel {
struct Seat;
}

struct DataParallelOptions {
  /// plain | zero1 | zero2. Under ZeRO the optimizer (SGD, Adam, AdamW, RMSprop, Adagrad) is given
  /// this rank's parts of the parameters: param_groups() hold flat views of them while this lives.
  std::string sync = "plain";
  double clip = 0;  // global gradient norm; 0 = off
  std::int64_t bucket_bytes = 4 << 20;
  /// Of gradients on the wire: none | auto | bf16 | f16 | topk:R | randomk:R | powersgd:RANK |
  /// onebit (parallel/data/compression). Any but none ends the promise of equal bits on any layout.
  std::string compression = "none";
  /// Threads of every kernel, part of the identity (NUMERICS.md). 0: as the process was set up,
  /// or 1.
  int kernel_threads = 0;
  /// Global batches that may be left out, on all ranks, because a gradient or a sum of gradients
  /// holds a NaN or an infinity; the one after the last of them is refused (StepRefused, exit code
  /// 21). Saved and counted on.
  std::int64_t skip_not_finite = 0;
};

/// A global batch that has ended.
struct BatchResult {
  /// Global mean; none where a rank called backward() of the loss itself, and not of DataParallel.
  std::optional<double> loss = {};
  std::optional<double> gradient_norm = {};  // before clipping; none with clip off
  std::optional<double> learning_rate = {};  // of the optimizer's first group of parameters
  /// Of all ranks: samples of the Sampler's, or what backward(sum, count) counted; none without.
  std::optional<std::int64_t> count = {};
  Duration communication{};        // time this rank was blocked on it
  std::string skipped = {};        // why it was left out on all ranks; empty: it was not
  std::int64_t skipped_steps = 0;  // left out so far
};

class DataParallel final : public Saveable, public StepVoter {
 public:
  /// Broadcasts rank 0's parameters and buffers and verifies them by hash: MismatchError naming the
  /// parameter where the models differ, or the rank whose processor computes other bits.
  /// ConfigError for LBFGS, for an optimizer with foreign parameters, for parameters that share
  /// memory without being one tensor, and for zero3 (a module is one block). `module` and
  /// `optimizer` must outlive it.
  DataParallel(Job& job, torch::nn::Module& module, torch::optim::Optimizer& optimizer,
               DataParallelOptions options = {});
  /// The same without a Job (parallel/seat.h), for ranks of the simulated network.
  DataParallel(const parallel::Seat& seat, torch::nn::Module& module,
               torch::optim::Optimizer& optimizer, DataParallelOptions options = {});
  /// Tells the other ranks that this one's loop has ended; one that is still in a step gets
  /// UnevenInput naming this rank.
  ~DataParallel() override;

  /// mean.backward() of a loss that is a mean over the micro-batch: take_results() has its global
  /// mean then.
  void backward(const at::Tensor& mean);
  /// A loss that is a sum over `count` items (tokens): weighted by count, not by sample.
  void backward(const at::Tensor& sum, std::int64_t count);
  /// Ends the micro-batch. True when a global batch was applied: afterwards gradients are
  /// undefined. Throws StepRefused on every rank where one saw a NaN beyond the budget, or a
  /// parameter of one was replaced since the start (nothing was applied); UnevenInput naming a rank
  /// whose loop has ended, or the communicator's error.
  bool step();
  /// The global batches that have ended since the call before, the oldest first; of more than 1,000
  /// the last ones. One step() may end two: where this rank has no share of a short batch it takes
  /// part in it before it returns. For Log::step(parallel).
  std::vector<BatchResult> take_results();
  /// Global batches applied, and left out within DataParallelOptions::skip_not_finite.
  std::int64_t steps() const noexcept;
  std::int64_t skipped_steps() const noexcept;
  /// The gradient's global norm in the last applied batch, before clipping; 0 with clip off.
  double gradient_norm() const noexcept;
  /// != 0: all ranks learned in the last batch's vote that the job is to stop (130, 143).
  int stop_signal() const noexcept override;
  bool all_ranks_return() const override;
  /// SHA-256 over parameters and buffers, as `trireme inspect --hash` (base/weights_hash.h).
  std::string weights_hash();

  std::vector<NamedShard> state() override;
  std::string metadata() const override;
  void restored(const std::string& metadata) override;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace v0
}  // namespace trireme
