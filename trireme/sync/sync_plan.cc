#include "trireme/sync/sync_plan.h"

#include <algorithm>

#include "trireme/base/error.h"

namespace trireme::inline v0::parallel {
namespace {

[[noreturn]] void refuse_sync(const std::string& what, const std::string& advice) {
  throw ConfigError(what, {.operation = "strategy", .advice = advice});
}

int shard_of_hybrid(int size, int shard, int local_size) {
  if (shard == 0) shard = local_size;
  if (shard == 0)
    refuse_sync(
        "parallel.sync = \"hybrid\" shards within a host, and the hosts have different numbers "
        "of ranks",
        "Start as many ranks on every host, or set parallel.shard.");
  if (shard < 1 || size % shard != 0)
    refuse_sync("parallel.shard = " + std::to_string(shard) + " does not divide " +
                    std::to_string(size) + " ranks: " + std::to_string(size % std::max(shard, 1)) +
                    " are left over",
                "Set parallel.shard to a divisor of " + std::to_string(size) + ".");
  return shard;
}

}  // namespace

bool is_local(const std::string& sync) {
  return sync == "local_sgd" || sync == "diloco" || sync == "easgd" || sync == "gossip";
}

SyncPlan plan_sync(const std::string& sync, int size, int shard, int local_size) {
  SyncPlan plan{.sync = sync, .assignment = kernel::contiguous(size)};
  if (sync == "hybrid") {
    plan.owners = shard_of_hybrid(size, shard, local_size);
    plan.shards_weights = plan.sharded();
    if (plan.sharded()) plan.assignment = {size / plan.owners, plan.owners};
    return plan;
  }
  if (shard > 1 && sync != "plain" && !is_local(sync) && size % shard != 0)
    refuse_sync("parallel.shard = " + std::to_string(shard) + " does not divide " +
                    std::to_string(size) + " ranks",
                "Leave it out: " + sync + " shards over all ranks.");
  if (sync == "plain") return plan;
  if (is_local(sync)) {
    if (shard > 1)
      refuse_sync("parallel.shard = " + std::to_string(shard) + " with parallel.sync = \"" + sync +
                      "\": every rank has a copy of its own",
                  "Leave parallel.shard out.");
    plan.local = true;
    return plan;
  }
  if (sync != "zero1" && sync != "zero2" && sync != "zero3")
    refuse_sync("parallel.sync = \"" + sync + "\" is not in this release",
                "Use plain, zero1, zero2, zero3, hybrid, local_sgd, diloco, easgd or gossip.");
  plan.owners = size;
  plan.shards_weights = sync == "zero3" && plan.sharded();
  if (sync != "zero1" && size > 1) plan.assignment = {1, size};
  return plan;
}

ShardGroups make_shard_groups(comm::Communicator& world, const SyncPlan& plan, bool gathers) {
  const int rank = world.rank(), owner = plan.owner_of(rank), group = rank / plan.owners;
  ShardGroups groups;
  groups.exchange = world.split(group, owner);
  if (plan.shards_weights && gathers) groups.gather = world.split(group, owner);
  if (plan.owners < world.size()) groups.replicas = world.split(owner, group);
  return groups;
}

}  // namespace trireme::inline v0::parallel
