// PipelineRunner: a step's micro-batches through this rank's pipeline stages, in the order of the
// schedule.
//
// Weight gradients reach each stage's ParameterSync by ascending micro-batch, one at a time. Where
// the schedule splits the backward pass, W computes those of our linear layers
// (tensor/deferred.h); foreign layers compute theirs in I, and W hands them on. What goes wrong in
// a pass is put in the ballot, and the schedule goes on without it.
//
// Where ranks of a stage share its weights (ZeRO-3, hybrid) they go through the same passes in the
// same order, those of the pipeline among them that has most micro-batches: a pipeline with one
// less gathers and sends in the places of its passes, and computes nothing. So every rank waits for
// what the others come to in the same place, and as the schedule cannot block, neither can this.
//
// Not thread safe.
#pragma once

#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "trireme/parallel/agreement.h"
#include "trireme/parallel/block_pins.h"
#include "trireme/parallel/data/autograd_hooks.h"
#include "trireme/parallel/grid.h"
#include "trireme/parallel/model_parts.h"
#include "trireme/parallel/pass_uses.h"
#include "trireme/parallel/pipeline/executor.h"
#include "trireme/parallel/pipeline/stage_passes.h"
#include "trireme/parallel/pipeline_sync.h"
#include "trireme/parallel/scalar_tree.h"
#include "trireme/parallel/seat.h"
#include "trireme/tensor/batch.h"
#include "trireme/tensor/deferred.h"

namespace trireme {
inline namespace v0 {
namespace parallel {

class PipelineRunner final : private Passes {
 public:
  using SumLoss = StagePasses::SumLoss;
  /// With what backward begins at the loss of so many items.
  using LossGradient = std::function<double(std::int64_t count)>;
  /// Told of the last stage's values, on its rank.
  using Output = std::function<void(std::size_t micro, const models::Value& value)>;

  /// All of them outlive it. `shares_weights`: ranks of a stage hold parts of its weights.
  PipelineRunner(const Seat& seat, PipelinePlan& plan, const Grid& grid, const ModelParts& parts,
                 PipelineSync& sync, bool shares_weights);

  /// For StepSync::begin(): what this rank comes to in the calls that follow, each of so many
  /// `passes`: one of train() (`backward`), or some of forward_only(). Their micro-batches are
  /// numbered on. Empty where nobody waits for it.
  std::vector<Use> uses(std::span<const std::uint32_t> passes, bool backward);

  /// Forward and backward of this pipeline's share, micro-batches `leaves` of the batch, in the
  /// schedule of `passes` (those of the pipeline that has most, where ranks share weights). The
  /// summed losses go to `losses`, and the counts into the ballot, on the last stage's rank;
  /// gradients are divided by what backward began with, every stage's.
  void train(const Batch& batch, std::span<const std::uint32_t> leaves, std::uint32_t passes,
             const SumLoss& loss, const LossGradient& loss_gradient, ScalarTree& losses,
             Ballot& ballot);
  /// Of train(): done when what it sent has left its memory. Then settle() says whether all ranks
  /// know the step to be good.
  Work sent() { return executor_.sent(); }
  void settle(bool good);

  /// Forward alone, without a graph; `passes` as above. Throws what a block or `output` throws,
  /// when the others have what they wait for; settle() follows as after train().
  void forward_only(std::span<const MicroBatch> micros, std::uint32_t passes, const Output& output);
  /// The last stage's value of one micro-batch, on its rank; empty elsewhere.
  models::Value last_value(const MicroBatch& micro);

  /// What the rank of the last stage knows, on all ranks of this pipeline.
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
    std::vector<bool> ran;                              // forward, by micro-batch
    std::vector<std::vector<double>> batch_statistics;  // by micro-batch
    // What waits for W, by micro-batch.
    struct Waiting {
      std::map<std::size_t, at::Tensor> gradients;  // that came with I, by leaf
      std::vector<tensor::DeferredGradient> deferred;
    };
    std::map<std::uint32_t, Waiting> waiting;
    std::map<const void*, std::size_t> leaf_of;  // parameter's TensorImpl -> leaf
    bool keeps_waiting = false;                  // gradients that come now do
    std::uint32_t micro = 0;                     // that runs back now
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
  std::uint32_t passes_before_ = 0;  // of the calls since uses()

  // Of the step, or the forward passes, under way.
  std::span<const MicroBatch> micros_;
  std::span<const std::uint32_t> leaves_;
  std::int64_t step_ = 0;
  const SumLoss* loss_ = nullptr;       // null: forward passes alone
  std::vector<double> loss_gradients_;  // by micro-batch
  Ballot* ballot_ = nullptr;
  std::vector<double> values_;  // summed losses by micro-batch
  const Output* output_ = nullptr;
  std::exception_ptr error_;  // of forward passes alone
};

}  // namespace parallel
}  // namespace v0
}  // namespace trireme
