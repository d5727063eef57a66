// SyncPlan: what a value of parallel.sync means on this many ranks: who computes which
// micro-batches, who owns what, and which groups of ranks there are for it. Pure arithmetic but for
// make_shard_groups().
#pragma once

#include <string>

#include "trireme/kernel/assignment.h"
#include "trireme/parallel/sharded_sync.h"

namespace trireme {
inline namespace v0 {
namespace parallel {

struct SyncPlan {
  std::string sync = "plain";
  kernel::Assignment assignment;
  int owners = 1;  // ranks that share one copy of gradient sums and optimizer state
  bool shards_weights = false;
  /// Every rank trains a copy of its own, and the copies are mixed now and then (local_sync.h): the
  /// result depends on the number of ranks.
  bool local = false;
  bool sharded() const noexcept { return owners > 1; }
  int owner_of(int rank) const noexcept { return rank % owners; }
};

/// plain | zero1 | zero2 | zero3 | hybrid | local_sgd | diloco | easgd | gossip on `size`
/// ranks. Hybrid shards over `shard` consecutive ranks (0: those of them that are on one host,
/// `local_size`; 0: as many are not on every host) and replicates over the others. ConfigError with
/// the arithmetic where they do not divide, and for another name.
SyncPlan plan_sync(const std::string& sync, int size, int shard, int local_size);

/// local_sgd and its relatives.
bool is_local(const std::string& sync);

/// Collective over `world`: this rank's groups; only where the plan is sharded. `gathers`: a group
/// for weights, too, where those are.
ShardGroups make_shard_groups(comm::Communicator& world, const SyncPlan& plan, bool gathers = true);

}  // namespace parallel
}  // namespace v0
}  // namespace trireme
