// Makes the StepSync of a Strategy: a ParameterSync for each of this rank's stages, and what
// combines them over a pipeline and over ranks that share layers.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "trireme/decentralised/local_sync.h"
#include "trireme/placement/grid.h"
#include "trireme/strategy/strategy.h"
#include "trireme/sync/levels/bucketed_sync.h"
#include "trireme/sync/model_parts.h"
#include "trireme/sync/parameter_sync.h"
#include "trireme/sync/strategy_context.h"
#include "trireme/sync/sync_plan.h"

namespace trireme::inline v0::parallel {

struct StrategySync {
  std::vector<ShardGroups> groups;      // of each stage; empty ones if nothing is sharded
  std::unique_ptr<StepSync> step;       // of the whole step; owns the following
  std::vector<ParameterSync*> of_part;  // of each stage
  LocalSync* local = nullptr;           // if ranks train separate copies
  BucketedSync* dealt = nullptr;        // whose shares of a batch may change; null: none
};

struct StrategySyncSetup {
  const StrategyContext& env;
  const StrategyOptions& options;
  const SyncPlan& plan;
  const PipelinePlan& pipeline;
  const Grid& grid;
  const ModelParts& parts;
  optim::Optimizer& optimizer;
  /// Called before the first bucket of a step; empty: the step begins with the barrier.
  std::function<Work()> enter_barrier;
  std::function<std::int64_t()> steps_done;  // updates since the start of the training
};

/// Collective. What `setup` refers to outlives the result.
StrategySync make_strategy_sync(const StrategySyncSetup& setup);

}  // namespace trireme::inline v0::parallel
