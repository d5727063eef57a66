// Builds this rank's part of a Strategy's model: decides where the pipeline cuts the list of
// blocks, builds the blocks with the layers of their group, and moves offloaded state to a file.
#pragma once

#include <optional>
#include <string>

#include "trireme/placement/grid.h"
#include "trireme/strategy/layer_group.h"
#include "trireme/strategy/strategy.h"
#include "trireme/sync/model_parts.h"
#include "trireme/sync/offload.h"
#include "trireme/sync/strategy_context.h"
#include "trireme/sync/sync_plan.h"

namespace trireme::inline v0::parallel {

/// The values from which the parts of a Strategy are made; it outlives them.
struct StrategySetup {
  const StrategyContext& env;
  const StrategyOptions& options;
  const SyncPlan& plan;
  const PipelinePlan& pipeline;
  const Grid& grid;
  const LayerGroup& layers;
};

/// Collective. Writes the measurements of a pipeline's rank 0 to `note`. Under
/// StrategyOptions::offload, `mapped` becomes the file that holds masters and shards of weights.
ModelParts build_model(const StrategySetup& setup, const models::Blocks& blocks, std::string& note,
                       std::optional<MappedState>& mapped);

}  // namespace trireme::inline v0::parallel
