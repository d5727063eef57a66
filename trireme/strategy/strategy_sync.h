// Makes the StepSync of a Strategy: a ParameterSync for each of this rank's stages, and the syncs
// that combine them over a pipeline and over ranks that share layers.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "trireme/decentralised/local_sync.h"
#include "trireme/strategy/model_setup.h"
#include "trireme/sync/levels/bucketed_sync.h"
#include "trireme/sync/parameter_sync.h"

namespace trireme::inline v0::parallel {

struct StrategySync {
  std::vector<ShardGroups> groups;      // of each stage; empty ones if nothing is sharded
  std::unique_ptr<StepSync> step;       // of the whole step; owns the following
  std::vector<ParameterSync*> of_part;  // of each stage
  LocalSync* local = nullptr;           // if ranks train separate copies
  BucketedSync* dealt = nullptr;        // of the last stage, whose shares may change; null: none
};

/// Collective. Keeps references to all arguments. `enter_barrier` is called before a step's first
/// bucket; empty: the step begins with the barrier. `steps_done`: updates since training began.
StrategySync make_strategy_sync(const StrategySetup& setup, const ModelParts& parts,
                                optim::Optimizer& optimizer,
                                const std::function<Work()>& enter_barrier,
                                const std::function<std::int64_t()>& steps_done);

}  // namespace trireme::inline v0::parallel
