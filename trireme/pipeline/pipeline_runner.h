// PipelineRunner: runs a step's micro-batches through this rank's pipeline stages, as scheduled.
//
// Weight gradients reach each stage's ParameterSync by ascending micro-batch, one at a time. If the
// schedule splits the backward pass, W computes the gradients of our linear layers
// (tensor/deferred.h). Foreign layers compute theirs in I, and W passes them on. An error in a pass
// is recorded in this rank's vote, and the schedule goes on without that pass; where ranks share
// layers, it is thrown at once.
//
// Ranks of a stage that share its weights (ZeRO-3, hybrid) go through the same passes in the same
// order: those of the pipeline with the most micro-batches. A pipeline with one fewer takes part in
// the gathers and sends of the missing passes and computes nothing. So every rank waits only for
// what the others reach at the same point. Since the schedule cannot block, this cannot either.
//
// Not thread safe.
#pragma once

#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "trireme/pipeline/executor.h"
#include "trireme/pipeline/pipeline_sync.h"
#include "trireme/pipeline/stage_passes.h"
#include "trireme/placement/grid.h"
#include "trireme/sync/agreement.h"
#include "trireme/sync/autograd_hooks.h"
#include "trireme/sync/block_pins.h"
#include "trireme/sync/model_parts.h"
#include "trireme/sync/pass_uses.h"
#include "trireme/sync/scalar_tree.h"
#include "trireme/sync/strategy_context.h"
#include "trireme/tensor/batch.h"
#include "trireme/tensor/deferred.h"

namespace trireme::inline v0::parallel {

class PipelineRunner final : private Passes {
 public:
  using SumLoss = StagePasses::SumLoss;
  /// The initial gradient of backward for a loss over `count` items.
  using LossGradient = std::function<double(std::int64_t count)>;
  /// Receives the last stage's value of each micro-batch, on that stage's rank.
  using Output = std::function<void(std::size_t micro, const models::Value& value)>;

  /// All arguments outlive it. `shares_weights`: each rank of a stage holds a shard of its weights.
  PipelineRunner(const StrategyContext& env, PipelinePlan& plan, const Grid& grid,
                 const ModelParts& parts, PipelineSync& sync, bool shares_weights);

  /// For StepSync::begin(): the block uses of the calls that follow, one train() (`backward`) or
  /// several forward_only(). `passes`: micro-batches of each call; their numbers go on from call to
  /// call. Empty if weights are whole, since then nobody waits.
  std::vector<Use> uses(std::span<const std::uint32_t> passes, bool backward);

  /// Forward and backward of this pipeline's share, micro-batches `leaves` of the batch, in the
  /// schedule of `passes` micro-batches: where ranks share weights, those of the pipeline that has
  /// the most. On the last stage's rank, adds the summed losses to `losses` and the counts to the
  /// vote. On every stage, gradients are divided by the initial gradient of backward.
  void train(const Batch& batch, std::span<const std::uint32_t> leaves, std::uint32_t passes,
             const SumLoss& loss, const LossGradient& loss_gradient, ScalarTree& losses,
             LocalVote& local_vote);
  /// Done when everything that train() sent has left its memory. Then call settle() with whether
  /// all ranks know the step to be good.
  Work sent() { return executor_.sent(); }
  void settle(bool good);

  /// Forward only, without a graph; `passes` as above. Throws what a block or `output` throws, once
  /// the other ranks have what they wait for. settle() follows as after train().
  void forward_only(std::span<const MicroBatch> micros, std::uint32_t passes, const Output& output);
  /// The last stage's value of one micro-batch, on its rank; empty elsewhere.
  models::Value last_value(const MicroBatch& micro);

  /// Broadcasts from the last stage's rank to all ranks of this pipeline.
  void tell_all(std::span<double> values) const;
  models::Value tell_all(models::Value value) const;

 private:
  // One of this rank's stages in a step.
  struct Part {
    ModelPart* model = nullptr;
    ParameterSync* sync = nullptr;
    std::unique_ptr<BlockPins> pins;  // null: weights are whole
    StagePasses passes;
    std::unique_ptr<GradientHooks> hooks;
    std::vector<bool> ran;                              // whose forward pass succeeded
    std::vector<std::vector<double>> batch_statistics;  // by micro-batch
    // Work left for W, by micro-batch.
    struct Waiting {
      std::map<std::size_t, at::Tensor> gradients;  // computed in I, by leaf
      std::vector<tensor::DeferredGradient> deferred;
    };
    std::map<std::uint32_t, Waiting> waiting;
    std::map<const void*, std::size_t> leaf_of;  // parameter's TensorImpl -> leaf
    bool keeps_waiting = false;                  // during I: gradients wait for W
    std::uint32_t micro = 0;                     // of the backward pass under way
  };

  Parcel forward(int stage, std::uint32_t micro, Parcel in) override;
  Parcel backward(int stage, std::uint32_t micro, Parcel gradients) override;
  Parcel backward_input(int stage, std::uint32_t micro, Parcel gradients) override;
  void backward_weight(int stage, std::uint32_t micro) override;
  void end_pass(plan::ActionKind pass, int stage, std::uint32_t micro) override;
  void refuse(const std::exception_ptr& error) override;
  void begin_micro(Part& part, std::uint32_t micro);
  Parcel forward_training(Part& part, std::uint32_t micro, Parcel in);
  Parcel forward_alone(Part& part, std::uint32_t micro, Parcel in);
  Parcel run_back(Part& part, std::uint32_t micro, Phase phase, const Parcel& gradients);
  Part& part_of(int stage);
  bool is_last(const Part& part) const;
  void take(Part& part, std::size_t leaf, at::Tensor gradient);
  void compute_deferred(Part& part, Part::Waiting& waiting, std::uint32_t block);
  void hand_on(Part& part, Part::Waiting& waiting, std::uint32_t block);
  void run(const plan::Schedule& schedule, std::uint32_t passes);
  void make_keys(std::span<const MicroBatch> micros, std::size_t count, const char* mode);

  PipelinePlan& plan_;
  const Grid& grid_;
  std::vector<std::unique_ptr<Part>> parts_;
  Executor executor_;
  std::vector<std::string> keys_;
  std::uint32_t passes_before_ = 0;  // micro-batches of the calls since uses()

  // State of the train() or forward_only() under way.
  std::span<const MicroBatch> micros_;
  std::span<const std::uint32_t> leaves_;
  std::int64_t step_ = 0;
  const SumLoss* loss_ = nullptr;       // null: forward only
  std::vector<double> loss_gradients_;  // by micro-batch
  LocalVote* ballot_ = nullptr;
  std::vector<double> values_;  // summed losses by micro-batch
  const Output* output_ = nullptr;
  std::exception_ptr error_;  // of forward_only()
};

}  // namespace trireme::inline v0::parallel
