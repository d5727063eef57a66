// StageRunner: runs a step's micro-batches through this rank's stages, as scheduled. Without a
// pipeline the rank has one stage with the whole model, and each micro-batch goes forward and back.
//
// Weight gradients reach each stage's ParameterSync by ascending micro-batch, one at a time. If the
// schedule splits the backward pass, W computes the gradients of our linear layers
// (tensor/functions/deferred.h). Other layers compute theirs in I, and W passes them on. An error
// in a pass is recorded in this rank's vote, and the schedule goes on without that pass; where
// ranks share layers, it is thrown at once.
//
// Ranks of a stage that share its weights (ZeRO-3, hybrid) go through the same passes in the same
// order: those of the rank with the most micro-batches. A rank with one fewer takes part in the
// gathers and sends of the missing passes and computes nothing. So a rank waits only for operations
// that the others reach at the same point: like the schedule, this cannot deadlock.
//
// Not thread safe.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "trireme/pipeline/executor.h"
#include "trireme/pipeline/pass_graphs.h"
#include "trireme/pipeline/stage_passes.h"
#include "trireme/placement/grid.h"
#include "trireme/sync/agreement.h"
#include "trireme/sync/buckets/autograd_hooks.h"
#include "trireme/sync/buckets/gradient_feed.h"
#include "trireme/sync/gathers/block_pins.h"
#include "trireme/sync/gathers/pass_uses.h"
#include "trireme/sync/model_parts.h"
#include "trireme/sync/scalar_tree.h"
#include "trireme/sync/strategy_context.h"
#include "trireme/tensor/batch.h"
#include "trireme/tensor/functions/deferred.h"

namespace trireme::inline v0::parallel {

struct StageRunnerOptions {
  /// Ranks that own shards of a stage's sums go through its blocks in one order: StepSync::begin()
  /// gets the uses of a training step.
  bool in_order = false;
  /// They also own shards of its weights: passes of forward_only() go in that order, too.
  bool shares_weights = false;
  /// Sees the gradients of the first stage; may be null.
  GradientObserver* observer = nullptr;
  /// The gradient at a loss over `count` items. Weight gradients are divided by it, then added.
  std::function<double(std::int64_t count)> loss_gradient = [](std::int64_t) { return 1.0; };
  /// Passes of train() are recorded and replayed (pass_graphs.h); for a whole model on a device.
  bool graphs = false;
};

/// Micro-batches of one rank.
struct Share {
  std::span<const MicroBatch> micros;     // what it was given
  std::span<const std::uint32_t> leaves;  // their numbers in the batch
  std::uint32_t passes = 0;               // of the schedule, which the rank's group goes through

  Share first(std::uint32_t count) const {
    return {micros.first(count), leaves.first(count), count};
  }
  Share after(std::uint32_t count) const {
    return {micros.subspan(count), leaves.subspan(count), passes - count};
  }
};

class StageRunner final : private Passes {
 public:
  using SumLoss = StagePasses::SumLoss;
  /// Receives the last stage's value of each micro-batch, on that stage's rank.
  using Output = std::function<void(std::size_t micro, const models::Value& value)>;

  /// All arguments outlive it. `syncs`: one per part.
  StageRunner(const StrategyContext& env, PipelinePlan& plan, const Grid& grid,
              const ModelParts& parts, const std::vector<ParameterSync*>& syncs,
              StageRunnerOptions options);

  /// For StepSync::begin(): the block uses of the next calls of train() (`backward`) or
  /// forward_only(), with passes[i] passes in call i, numbered on. Empty if nobody waits for a use.
  std::vector<Use> uses(std::span<const std::uint32_t> passes, bool backward);

  /// Forward and backward of this rank's share. On the last stage's rank, adds the summed losses to
  /// `losses` and the counts to the vote.
  void train(const Share& share, std::int64_t step, const SumLoss& loss, ScalarTree& losses,
             LocalVote& local_vote);
  /// Done when everything that train() sent has left its memory. Then call settle(); `good`: all
  /// ranks know that the step was good.
  Work sent() { return executor_.sent(); }
  void settle(bool good);
  /// Takes the gradients of the first stage that lanes compute.
  GradientFeed& feed() { return parts_.front()->feed; }
  /// Null without graphs.
  const PassGraphs* graphs() const noexcept { return graphs_ ? &*graphs_ : nullptr; }

  /// Forward only, without a graph; `passes` as above. Throws what a block or `output` throws, once
  /// the other ranks have what they wait for. settle() follows as after train().
  void forward_only(std::span<const MicroBatch> micros, std::uint32_t passes, const Output& output);

  /// Gives all ranks of this pipeline what the last stage's rank has.
  void tell_all(std::span<double> values) const;
  models::Value tell_all(models::Value value) const;

 private:
  // One of this rank's stages in a step.
  struct LocalStage {
    // Work left for W.
    struct Waiting {
      std::map<std::size_t, at::Tensor> gradients;  // computed in I, by leaf
      std::vector<tensor::DeferredGradient> deferred;
    };
    LocalStage(ModelPart& model, ParameterSync& sync, GradientObserver* observer);
    bool is_in(std::size_t leaf, std::uint32_t block) const {
      return model->store.use_of_leaf()[leaf].block == block;
    }
    void take(std::size_t leaf, at::Tensor gradient);
    void compute_deferred(Waiting& work, std::uint32_t block);
    void hand_on(Waiting& work, std::uint32_t block);
    PassGraphs::Result record(const MicroBatch& micro, std::int64_t step, const SumLoss& loss);
    void hand_on_replayed();
    ModelPart* model;
    ParameterSync* sync;
    GradientFeed feed;
    StagePasses passes;
    std::optional<BlockPins> pins;  // if ranks go through the blocks in one order
    std::optional<GradientHooks> hooks;
    std::vector<bool> ran;                              // whose forward pass succeeded
    std::vector<std::vector<double>> batch_statistics;  // by micro-batch
    std::map<std::uint32_t, Waiting> waiting;           // by micro-batch
    std::map<const void*, std::size_t> leaf_of;         // parameter's TensorImpl -> leaf
    Waiting* kept = nullptr;                            // during I: takes the gradients for W
    PassGraphs::Result* recording = nullptr;            // takes the gradients of a recorded pass
    const PassGraphs::Result* replayed = nullptr;       // whose gradients are still to be taken
  };

  OnPass recorder(std::shared_ptr<observe::Trace> trace) const;
  Parcel forward(int stage, std::uint32_t micro, Parcel in) override;
  Parcel backward(int stage, std::uint32_t micro, Parcel gradients) override;
  Parcel backward_input(int stage, std::uint32_t micro, Parcel gradients) override;
  void backward_weight(int stage, std::uint32_t micro) override;
  void end_pass(plan::ActionKind pass, int stage, std::uint32_t micro) override;
  void refuse(const std::exception_ptr& error) override;
  bool replay(LocalStage& part, std::uint32_t micro);
  Parcel forward_training(LocalStage& part, std::uint32_t micro, Parcel in,
                          const Stage::Enter& around);
  Parcel forward_alone(LocalStage& part, std::uint32_t micro, Parcel in,
                       const Stage::Enter& around);
  Parcel run_back(LocalStage& part, std::uint32_t micro, Phase phase, const Parcel& gradients);
  LocalStage& part_of(int stage);
  bool is_last(const LocalStage& part) const { return part.model->stage + 1 == plan_.stages(); }
  void run(const plan::Schedule& schedule, std::size_t micros, std::uint32_t passes,
           const char* mode);

  PipelinePlan& plan_;
  const Grid& grid_;
  StageRunnerOptions options_;
  const at::Device device_;  // of the values that cross cuts
  std::vector<std::unique_ptr<LocalStage>> parts_;
  Executor executor_;
  std::optional<PassGraphs> graphs_;
  std::uint32_t passes_before_ = 0;  // micro-batches of the calls since uses()

  // State of the train() or forward_only() under way.
  std::span<const MicroBatch> micros_;
  std::span<const std::uint32_t> leaves_;
  std::int64_t step_ = 0;
  const SumLoss* loss_ = nullptr;       // null: forward only
  std::vector<double> loss_gradients_;  // by micro-batch
  LocalVote* vote_ = nullptr;
  std::vector<at::Tensor> sums_;  // of the losses, by micro-batch
  const Output* output_ = nullptr;
  std::exception_ptr error_;  // of forward_only()
};

}  // namespace trireme::inline v0::parallel
