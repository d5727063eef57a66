// Strategy::Impl: the parts of a Strategy, in the order in which they are made. Each is a class of
// its own; strategy.cc joins them.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trireme/ps/rows/row_store.h"
#include "trireme/ps/worker/remote_optimizer.h"
#include "trireme/strategy/evaluator.h"
#include "trireme/strategy/lane_runner.h"
#include "trireme/strategy/layer_group.h"
#include "trireme/strategy/model_state.h"
#include "trireme/strategy/shares.h"
#include "trireme/strategy/step_engine.h"
#include "trireme/strategy/step_guards.h"
#include "trireme/strategy/strategy_sync.h"
#include "trireme/sync/compression/compression_state.h"
#include "trireme/sync/offload.h"
#include "trireme/sync/weight_average.h"
#include "trireme/tensor/devices/device_graph.h"

namespace trireme::inline v0 {

struct Strategy::Impl final : parallel::StepTarget {
  Impl(const parallel::StrategyContext& own_env, const models::Blocks& own_model,
       StrategyOptions own_options, std::unique_ptr<optim::Optimizer> own_optimizer,
       const std::string& optimizer_text);

  StepResult step(const Batch& given, const Loss& loss);
  /// Between steps: chooses the shares of the next ones by what all ranks measured.
  std::optional<ShareChange> balance(std::uint32_t total);
  void compute(const Batch& batch, const Loss& loss, std::uint32_t passes);
  void check_share(const Batch& batch, std::span<const std::uint32_t> leaves,
                   parallel::LocalVote& vote) const;
  [[noreturn]] void refuse_alone(const parallel::LocalVote& vote, std::int64_t step) const;
  std::vector<NamedShard> state(bool with_servers);
  std::string metadata() const;
  void restored(const std::string& metadata);
  [[noreturn]] void refuse_metadata() const;
  void use_average(bool on);
  /// While the result lives, all ranks have the weights of the model that they train together.
  std::shared_ptr<void> common_weights();
  /// Ends the other ranks' waits after an error in the middle of a collective call.
  void give_up(const std::exception_ptr& error);

  // StepTarget
  std::string name_of(std::size_t parameter) const override;
  std::vector<double> learning_rates() const override { return {rate}; }
  void check_first_gradients() override {
    layers.check_gradients(sync.step->owned(), parts, plan.sharded());
  }
  void gather_statistics(std::uint32_t total) override;
  void fold_statistics() override {
    for (const auto& part : parts.parts()) part->statistics.fold();
  }
  void update(double scale) override;
  void mixed() override { parts.reload_statistics(); }
  void drop() override;

  parallel::StrategyContext env;
  const StrategyOptions options;
  parallel::SyncPlan plan;                         // its shares change between steps only
  std::optional<tensor::RecordableStream> stream;  // of all work on the device; with graphs
  parallel::PipelinePlan pipeline;
  const parallel::Grid grid;
  kernel::Assignment places;  // of the world's ranks
  const parallel::LayerGroup layers;
  const parallel::StrategySetup setup{env, options, plan, pipeline, grid, layers};
  const models::Blocks model;  // lanes are built from it
  std::string stages_note;
  std::optional<parallel::MappedState> mapped;  // outlives the tensors in it
  parallel::ModelParts parts;
  std::unique_ptr<optim::Optimizer> optimizer;
  ps::RemoteOptimizer* const remote;   // the optimizer; null: it runs in this process
  std::shared_ptr<ps::RowStore> rows;  // of embeddings; null: the model has none
  double rate;                         // of the next update
  parallel::StrategySync sync;
  parallel::CompressionState compression;
  std::optional<parallel::WeightAverage> average;
  bool averaged = false;  // weights and averages are swapped
  parallel::StepGuards guards;
  parallel::StageRunner runner;
  parallel::LaneRunner lanes;
  parallel::ModelState content;
  parallel::Evaluator evaluator;
  std::optional<parallel::ShareBalance> shares;  // null: they are fixed
  parallel::StepEngine engine;                   // last: its destructor tells the other ranks
};

}  // namespace trireme::inline v0
