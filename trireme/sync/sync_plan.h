// SyncPlan: what a value of parallel.sync means on this many ranks: who computes which
// micro-batches, who owns what, and which groups of ranks it needs. Pure arithmetic except for
// make_shard_groups().
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "trireme/comm/communicator.h"
#include "trireme/kernel/assignment.h"

namespace trireme::inline v0::parallel {

struct SyncPlan {
  std::string sync = "plain";
  std::string title = {};  // for people: "ZeRO-3"
  kernel::Assignment assignment;
  int owners = 1;  // ranks that share one copy of gradient sums and optimizer state
  bool shards_weights = false;
  /// Every rank trains its own copy, and the copies are mixed now and then (local_sync.h): the
  /// result depends on the number of ranks.
  bool local = false;
  /// Servers hold the optimizer's state and update the weights (ps/).
  bool served = false;
  bool sharded() const noexcept { return owners > 1; }
  bool shards_gradients() const noexcept { return sharded() && assignment.members > 1; }
  /// Whether the ranks of a group go through their passes together, in one order of uses.
  bool in_order(bool in_pipeline) const noexcept {
    return in_pipeline ? shards_weights : sharded();
  }
  int owner_of(int rank) const noexcept { return rank % owners; }
  /// How many micro-batches `rank` goes through in a batch of `total`: its own or, if the ranks of
  /// its group go `together`, as many as the rank with the most.
  std::uint32_t passes_of(int rank, std::uint32_t total, bool together) const {
    const int first = together ? rank / assignment.members * assignment.members : rank;
    return static_cast<std::uint32_t>(leaves_of(assignment, total, first).size());
  }
};

/// The arguments of plan_sync(), for a level.
struct SyncRanks {
  std::string sync;
  int size = 1, shard = 0, local_size = 0;
};
[[noreturn]] void refuse_sync(const std::string& what, const std::string& advice);

/// The values of parallel.sync.
std::vector<std::string> sync_names();
/// Those under which ranks keep equal weights, plain and the levels of ZeRO, least communication
/// first. Only those for which `such`, one of the functions below, has this value; null: all.
std::vector<std::string> level_names(bool (*such)(const std::string& sync) = nullptr,
                                     bool value = true);
/// "plain, all of it; zero1, a part of the optimizer state; ...": what a rank keeps under each.
std::string levels_help();

/// `sync`, one of sync_names(), on `size` ranks. Hybrid shards over `shard` consecutive ranks (0:
/// the `local_size` ranks of a host; 0: hosts differ) and replicates over the others. ConfigError
/// with the arithmetic if they do not divide, and for another name.
SyncPlan plan_sync(const std::string& sync, int size, int shard, int local_size);

/// Whether ranks own parts of the optimizer state: zero1 and all that follow.
bool shards_state(const std::string& sync);
/// Whether ranks go through micro-batches together: zero2, zero3, hybrid.
bool goes_in_rounds(const std::string& sync);
/// Whether weights are sharded, too: zero3, hybrid.
bool shards_weights(const std::string& sync);
/// Whether parallel.shard ranks share a copy of the model: hybrid.
bool shards_in_groups(const std::string& sync);
/// Whether ranks train separate copies: local_sgd and its relatives.
bool is_local(const std::string& sync);
/// Whether servers update the weights: server.
bool is_served(const std::string& sync);

/// A rank's groups. Gradients and weights move at the same time, so each has its own group.
struct ShardGroups {
  std::shared_ptr<comm::Communicator> exchange, gather;  // the same ranks: the owners
  std::shared_ptr<comm::Communicator> replicas;  // the owners of this shard; null if only one
};

/// Collective over `world`: this rank's groups, for a sharded plan. `gathers`: also a group for the
/// weights, if the plan shards them.
ShardGroups make_shard_groups(comm::Communicator& world, const SyncPlan& plan, bool gathers = true);

}  // namespace trireme::inline v0::parallel
