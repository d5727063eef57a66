// DataParallel: trains your own module with your own loop and torch::optim optimizer (docs/api.md).
//
// One backward() is one micro-batch; step() replaces `adam.step(); adam.zero_grad();`. On the last
// micro-batch of a global batch, step() finishes the buckets, votes, applies, zeroes and returns
// true; before that it only accumulates and returns false. The Sampler of the same Job says which
// one is the last; without a Sampler, each step() ends a batch of one micro-batch per rank.
//
// LibTorch's default generator is seeded by (its seed on rank 0, batch, micro-batch) before each
// micro-batch, so that dropout does not depend on the rank count. Running statistics of batch norms
// are captured per micro-batch and folded in index order after the vote; if a batch norm runs several
// times before step(), also in another DataParallel's micro-batch, its last run counts. Other buffers
// that forward() changes stay local to a rank. Not thread safe.
//
// Several may train in one loop, such as a generator and its discriminator: make them in the same
// order on all ranks, and call step() of each once in an iteration. Each may leave out whole
// batches. Weights have the same bits on any number of ranks unless a loss uses weights that
// another DataParallel has updated in the same iteration. An elastic job that loses a rank between
// two step()s goes back to copies in memory (checkpoint.memory) or to the newest checkpoint.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trireme/base/clock.h"
#include "trireme/tensor/state.h"

namespace torch::nn {
class Module;
}
namespace torch::optim {
class Optimizer;
}

namespace trireme::inline v0 {

class Job;
namespace parallel {
struct StrategyContext;
}

struct DataParallelOptions {
  /// plain | zero1 | zero2 | server. Under ZeRO, while this lives, param_groups() of the optimizer
  /// (SGD, Adam, AdamW, RMSprop, Adagrad) hold flat views of this rank's shards of the parameters.
  /// Under server, the servers update the parameters as the optimizer would (SGD, AdamW, Adam
  /// without weight decay, Adagrad; one parameter group, whose learning rate counts in each step).
  std::string sync = "plain";
  /// For server, as ServerOptions (sync/options.h).
  std::int64_t staleness = 0;
  int backup = 0;
  double compensation = 0;
  bool prediction = false;  // see DataParallel::settle()
  int replicas = 1;
  double clip = 0;  // global gradient norm; 0 = off
  std::int64_t bucket_bytes = 4 << 20;
  /// Compression of gradients on the wire: none | auto | bf16 | f16 | topk:R | randomk:R |
  /// powersgd:RANK | onebit (sync/compression). Any but none makes the bits depend on the layout.
  std::string compression = "none";
  /// Threads per kernel; the bits depend on it (docs/numerics.md). 0: as the process has, or 1.
  int kernel_threads = 0;
  /// Weights of the ranks' shares of a global batch, such as "3:2:1", under plain and zero1; or
  /// equal. Changes no bit. A loader reads ahead, so there is no auto here.
  std::string shares = "equal";
  /// Number of global batches that all ranks may skip because a gradient or a sum of gradients
  /// holds a NaN or an infinity. One more throws StepRefused (exit code 21). Checkpoints save it.
  std::int64_t skip_not_finite = 0;
};

/// A global batch that has ended.
struct BatchResult {
  /// Global mean; none if a rank called loss.backward() instead of DataParallel::backward().
  std::optional<double> loss = {};
  std::optional<double> gradient_norm = {};  // before clipping; none with clip off
  std::optional<double> learning_rate = {};  // of the optimizer's first parameter group
  /// Over all ranks: samples of the Sampler, or items given to backward(sum, count); else none.
  std::optional<std::int64_t> count = {};
  Duration communication{};        // time this rank was blocked on communication
  std::string skipped = {};        // why all ranks skipped it; empty: it was applied
  std::int64_t skipped_steps = 0;  // skipped so far
  int last_rank = -1;              // as in StepResult
  Duration behind{};
};

class DataParallel final : public Saveable, public StepVoter {
 public:
  /// Broadcasts rank 0's parameters and buffers and verifies them by hash. MismatchError names the
  /// parameter in which the models differ, or a rank with another processor, other options, another
  /// optimizer or another state of it (not compared in an elastic job, in one that is not
  /// reproducible, with servers, or for an optimizer of the program's own). ConfigError for LBFGS;
  /// for an optimizer that has foreign parameters, none of the module's, or one twice; for
  /// different parameters that share memory; for a module that another living DataParallel trains;
  /// and for zero3 (a module is one block). `job`, `module` and `optimizer` must outlive this
  /// object.
  DataParallel(Job& job, torch::nn::Module& module, torch::optim::Optimizer& optimizer,
               DataParallelOptions options = {});
  /// The same without a Job (sync/strategy_context.h), for ranks of the simulated network.
  DataParallel(const parallel::StrategyContext& env, torch::nn::Module& module,
               torch::optim::Optimizer& optimizer, DataParallelOptions options = {});
  /// Announces to the other ranks that this rank's loop has ended. A rank that is still in a step
  /// gets UnevenInput naming this rank.
  ~DataParallel() override;

  /// Calls mean.backward(). `mean` is the loss averaged over the micro-batch; take_results() then
  /// reports its global mean. Gradients of parameters that other DataParallels train are dropped;
  /// for a loss of several, call mean.backward() itself.
  void backward(const at::Tensor& mean);
  /// The same for a loss summed over `count` items (tokens): weighted by count, not by sample. One
  /// batch has either these or means. ConfigError for a negative count. 0: a micro-batch without
  /// items.
  void backward(const at::Tensor& sum, std::int64_t count);
  /// Ends the micro-batch. True if a global batch was applied; gradients are undefined afterwards.
  /// Throws StepRefused on every rank (nothing was applied) if one rank saw a NaN beyond the
  /// budget, or had a parameter replaced since the start; if no rank called backward(); if some
  /// losses are means and others sums; or if all counts are 0 and the loss is not. Throws
  /// UnevenInput naming a rank whose loop has ended; or the communicator's error.
  bool step();
  /// The global batches that have ended since the last call, oldest first, at most the last 1,000.
  /// One step() may end two: a rank without a share of a short batch takes part in it before step()
  /// returns. For Log::step(parallel).
  std::vector<BatchResult> take_results();
  /// Global batches applied, and skipped under DataParallelOptions::skip_not_finite.
  std::int64_t steps() const noexcept;
  std::int64_t skipped_steps() const noexcept;
  /// The gradient's global norm in the last applied batch, before clipping; 0 with clip off.
  double gradient_norm() const noexcept;
  /// != 0: all ranks learned in the last batch's vote that the job must stop (130, 143).
  int stop_signal() const noexcept override;
  bool all_ranks_return() const override;
  std::optional<std::int64_t> steps_ended() const override;
  /// SHA-256 over parameters and buffers as by `trireme inspect --hash`. Calls settle().
  std::string weights_hash();
  /// With DataParallelOptions::prediction, step() leaves predicted weights in the module for the
  /// next forward passes (ps/server/shard.h). settle() replaces them by the servers' own until the
  /// next batch is applied: call it before the module is evaluated or saved. state() calls it, too.
  void settle();

  std::vector<NamedShard> state() override;
  std::vector<NamedShard> own_state() override;
  bool can_go_on(const std::string& metadata) override;
  std::string metadata() const override;
  void restored(const std::string& metadata) override;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace trireme::inline v0
