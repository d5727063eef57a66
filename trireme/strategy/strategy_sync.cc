#include "trireme/strategy/strategy_sync.h"

#include "trireme/base/error.h"
#include "trireme/pipeline/pipeline_sync.h"
#include "trireme/ps/worker/server_sync.h"
#include "trireme/strategy/served.h"
#include "trireme/sync/gathers/unit_gather.h"
#include "trireme/sync/levels/cut_sync.h"
#include "trireme/sync/sync_setup.h"

namespace trireme::inline v0::parallel {
namespace {

SyncSetup stage_setup(const StrategySetup& setup, ModelPart& part, const ShardGroups& groups,
                      const std::function<Work()>& enter_barrier,
                      const std::shared_ptr<UnitGather>& gather, std::uint32_t number) {
  return {.plan = setup.plan,
          .data = *part.data,
          .store = part.store,
          .groups = groups,
          .options = {.bucket_bytes = setup.options.bucket_bytes,
                      .overlap = setup.options.overlap,
                      .reduce = setup.env.reduce,
                      .before_launch = enter_barrier,
                      .compression = setup.options.compression,
                      .seed = setup.options.seed},
          .on_event = setup.env.on_shard_event,
          .in_pipeline = setup.grid.pipeline != nullptr,
          .gather = gather,
          .part = number};
}

ps::RemoteOptimizer& remote(optim::Optimizer& optimizer) {
  if (auto* own = remote_of(optimizer)) return *own;
  throw ConfigError(
      "parallel.sync = \"server\" cannot be combined with an optimizer that runs in this process",
      {.operation = "strategy", .advice = "Give the Strategy OptimizerOptions."});
}

}  // namespace

// In a pipeline, one group gathers the weights of all stages of a rank, in the order of its passes.
StrategySync make_strategy_sync(const StrategySetup& setup, const ModelParts& parts,
                                optim::Optimizer& optimizer,
                                const std::function<Work()>& enter_barrier,
                                const std::function<std::int64_t()>& steps_done) {
  StrategySync made;
  std::vector<ShardGroups>& groups = made.groups;
  groups.resize(parts.parts().size());
  std::vector<ParameterStore*> stores;
  for (std::size_t i = 0; i < groups.size(); ++i) {
    ModelPart& part = *parts.parts()[i];
    if (setup.plan.sharded()) groups[i] = make_shard_groups(*part.data, setup.plan, i == 0);
    stores.push_back(&part.store);
  }
  std::shared_ptr<UnitGather> gather;
  if (setup.plan.shards_weights && setup.grid.pipeline != nullptr)
    gather = std::make_shared<UnitGather>(*groups.front().gather, stores, setup.env.on_shard_event);
  std::vector<std::unique_ptr<ParameterSync>> syncs;
  for (std::size_t i = 0; i < groups.size(); ++i) {
    ModelPart& part = *parts.parts()[i];
    const SyncSetup own =
        stage_setup(setup, part, groups[i], enter_barrier, gather, static_cast<std::uint32_t>(i));
    if (setup.plan.local) {
      auto local = std::make_unique<LocalSync>(
          own, make_mixer(setup.plan.sync, *part.data, setup.options.local), setup.options.local,
          steps_done);
      made.local = local.get();
      syncs.push_back(std::move(local));
    } else if (setup.plan.served) {
      syncs.push_back(std::make_unique<ps::ServerSync>(own, remote(optimizer)));
    } else {
      auto bucketed = make_parameter_sync(own);
      made.dealt = bucketed.get();
      syncs.push_back(std::move(bucketed));
    }
    made.of_part.push_back(syncs.back().get());
  }
  if (setup.grid.pipeline != nullptr) {
    made.step = std::make_unique<PipelineSync>(*setup.grid.pipeline, setup.pipeline, parts,
                                               std::move(syncs));
  } else {
    made.step = std::move(syncs.front());
  }
  if (setup.grid.cut != nullptr)
    made.step = std::make_unique<CutSync>(std::move(made.step), *setup.grid.cut,
                                          setup.grid.tensor_ranks(), parts);
  return made;
}

}  // namespace trireme::inline v0::parallel
