#include "trireme/strategy/sync_setup.h"

#include <limits>

#include "trireme/pipeline/pipeline_sync.h"
#include "trireme/sync/cut_sync.h"

namespace trireme::inline v0::parallel {
namespace {

// If weights are whole, ranks of a stage may be at different passes: they must not wait there.
std::unique_ptr<ParameterSync> make_sharded(const SyncSetup& setup, ModelPart& part,
                                            const ShardGroups& groups, UnitGather* gather,
                                            std::uint32_t number) {
  ShardedSyncOptions options{.assignment = setup.plan.assignment,
                             .rank = part.data->rank(),
                             .bucket_bytes = setup.options.bucket_bytes,
                             .gather = gather,
                             .part = number,
                             .before_launch = setup.enter_barrier,
                             .on_event = setup.env.on_shard_event};
  if (setup.grid.pipeline != nullptr && !setup.plan.shards_weights)
    options.most_under_way = std::numeric_limits<std::size_t>::max();
  return std::make_unique<ShardedSync>(groups, part.store, std::move(options));
}

std::unique_ptr<PlainSync> make_plain(const SyncSetup& setup, const ModelPart& part) {
  return std::make_unique<PlainSync>(*part.data, part.store.uses(), part.store.parameter_of(),
                                     part.store.slices(),
                                     PlainSyncOptions{.bucket_bytes = setup.options.bucket_bytes,
                                                      .overlap = setup.options.overlap,
                                                      .reduce = setup.env.reduce,
                                                      .before_launch = setup.enter_barrier,
                                                      .compression = setup.options.compression,
                                                      .seed = setup.options.seed});
}

std::unique_ptr<LocalSync> make_local(const SyncSetup& setup, const ModelPart& part) {
  return std::make_unique<LocalSync>(make_plain(setup, part),
                                     make_mixer(setup.plan.sync, *part.data, setup.options.local),
                                     setup.options.local, setup.steps_done);
}

}  // namespace

// In a pipeline, one group gathers the weights of all of this rank's stages, in the order of its
// passes.
StrategySync make_strategy_sync(const SyncSetup& setup) {
  StrategySync made;
  std::vector<ShardGroups> groups(setup.parts.parts().size());
  std::vector<ParameterStore*> stores;
  for (std::size_t i = 0; i < groups.size(); ++i) {
    ModelPart& part = *setup.parts.parts()[i];
    if (setup.plan.sharded()) groups[i] = make_shard_groups(*part.data, setup.plan, i == 0);
    stores.push_back(&part.store);
  }
  made.groups = groups.front();
  std::unique_ptr<UnitGather> gather;
  if (setup.plan.shards_weights && setup.grid.pipeline != nullptr)
    gather = std::make_unique<UnitGather>(*made.groups.gather, stores, setup.env.on_shard_event);
  std::vector<std::unique_ptr<ParameterSync>> syncs;
  for (std::size_t i = 0; i < groups.size(); ++i) {
    ModelPart& part = *setup.parts.parts()[i];
    if (setup.plan.sharded()) {
      syncs.push_back(
          make_sharded(setup, part, groups[i], gather.get(), static_cast<std::uint32_t>(i)));
    } else if (setup.plan.local) {
      auto local = make_local(setup, part);
      made.local = local.get();
      syncs.push_back(std::move(local));
    } else {
      syncs.push_back(make_plain(setup, part));
    }
    made.of_part.push_back(syncs.back().get());
  }
  if (setup.grid.pipeline != nullptr) {
    made.step = std::make_unique<PipelineSync>(*setup.grid.pipeline, setup.pipeline, setup.parts,
                                               std::move(gather), std::move(syncs));
  } else {
    made.step = std::move(syncs.front());
  }
  if (setup.grid.cut != nullptr)
    made.step = std::make_unique<CutSync>(std::move(made.step), *setup.grid.cut,
                                          setup.grid.tensor_ranks(), setup.parts);
  return made;
}

}  // namespace trireme::inline v0::parallel
