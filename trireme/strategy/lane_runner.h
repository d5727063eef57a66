// LaneRunner: decides whether a rank's micro-batches run in lanes (StrategyOptions::lanes), and
// runs them. Gradients go to the same GradientFeed, in the same order, as without lanes.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>

#include "trireme/pipeline/stage_runner.h"
#include "trireme/strategy/model_setup.h"
#include "trireme/sync/batch_statistics.h"
#include "trireme/sync/lanes.h"

namespace trireme::inline v0::parallel {

class LaneRunner {
 public:
  /// All arguments outlive it. Lanes are built from `model`; `whole` is the rank's own copy.
  LaneRunner(const StrategySetup& setup, const models::Blocks& model, ModelPart& whole);

  int count() const { return lanes_ ? lanes_->count() : 1; }
  /// Why there is one lane although more were requested. Empty: lanes are in use, or will be.
  const std::string& note() const { return note_; }
  /// Whether the next micro-batch must run alone: the first one of a training shows whether a block
  /// draws from the generator that all threads share.
  bool needs_first() const { return setup_.options.lanes > 1 && note_.empty() && !has_run_; }
  /// Call after a micro-batch has run. Returns whether lanes compute the next `count` of this step.
  bool start(std::size_t count);
  /// Computes the micro-batches of `share`.
  void train(const Share& share, std::int64_t step, const StageRunner::SumLoss& loss,
             const std::function<double(std::int64_t)>& loss_gradient, GradientFeed& feed,
             ScalarTree& losses, LocalVote& vote);
  /// The step was refused.
  void drop() {
    for (const auto& [stage, own] : statistics_) own->drop();
  }

 private:
  std::string why_one_lane() const;
  void make_lanes();

  const StrategySetup& setup_;
  const models::Blocks& model_;
  ModelPart& whole_;
  std::string note_;
  bool has_run_ = false;
  std::unique_ptr<Lanes> lanes_;
  // For each lane's copy of the model.
  std::map<const Stage*, std::unique_ptr<BatchStatistics>> statistics_;
};

}  // namespace trireme::inline v0::parallel
