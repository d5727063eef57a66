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
  /// Everything outlives it. `model` is what lanes are built from, `whole` the rank's own copy.
  LaneRunner(const StrategySetup& setup, const models::Blocks& model, ModelPart& whole);

  int count() const { return lanes_ ? lanes_->count() : 1; }
  /// Why there is one lane although more were requested; empty: they are used, or not yet.
  const std::string& note() const { return note_; }
  /// Whether the next micro-batch must run alone, to show whether a block draws from the generator
  /// that all threads share: the very first one of a training.
  bool needs_first() const { return setup_.options.lanes > 1 && note_.empty() && !has_run_; }
  /// After a micro-batch has run: whether lanes take the `count` that follow in this step.
  bool start(std::size_t count);
  /// Computes the micro-batches of `share`.
  void train(const Share& share, std::int64_t step, const StageRunner::SumLoss& loss,
             const std::function<double(std::int64_t)>& loss_gradient, GradientFeed& feed,
             ScalarTree& losses, LocalVote& vote);
  /// The step was refused.
  void drop();

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
