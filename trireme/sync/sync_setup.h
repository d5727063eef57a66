// make_parameter_sync(): the ParameterSync of a plan, over the parameters of a store.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "trireme/sync/gathers/parameter_store.h"
#include "trireme/sync/levels/plain_sync.h"
#include "trireme/sync/parameter_sync.h"
#include "trireme/sync/sync_plan.h"

namespace trireme::inline v0::parallel {

class WeightGather;

struct SyncSetup {
  const SyncPlan& plan;
  comm::Communicator& data;  // the ranks that hold the same parameters
  ParameterStore& store;
  ShardGroups groups = {};  // of a sharded plan
  /// Options of plain data parallel; ZeRO reads bucket_bytes and before_launch only.
  PlainSyncOptions options = {};
  OnShardEvent on_event = {};
  /// For a rank of a pipeline. If the plan shards weights, `gather` serves all its stages, and
  /// `part` is this stage's number in it.
  bool in_pipeline = false;
  std::shared_ptr<WeightGather> gather = nullptr;
  std::uint32_t part = 0;
};

/// Collective over `data`. `data` and the store must outlive the result. Not for plans whose ranks
/// train copies or have servers (SyncPlan::local, served), which have their own classes.
std::unique_ptr<BucketedSync> make_parameter_sync(const SyncSetup& setup);

}  // namespace trireme::inline v0::parallel
