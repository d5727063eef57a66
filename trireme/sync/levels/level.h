// Level: a value of parallel.sync, with what it shards and when that moves. A file defines those of
// one class, and list.inc has a line for each.
#pragma once

#include <memory>
#include <string_view>

#include "trireme/sync/sync_setup.h"

namespace trireme::inline v0::parallel {

struct Level {
  std::string_view name, title;  // SyncPlan::sync, title
  SyncPlan (*plan)(const SyncRanks& ranks);
  std::unique_ptr<BucketedSync> (*make)(const SyncSetup& setup);
  bool rounds = false;   // ranks go through micro-batches together
  bool weights = false;  // weights are sharded, too
  bool groups = false;   // groups of parallel.shard ranks each have a copy of the model
  bool local = false;    // ranks train separate copies (decentralised/)
  bool served = false;   // servers update the weights (ps/)
};

template <class Sync>
std::unique_ptr<BucketedSync> make_level(const SyncSetup& setup) {
  return std::make_unique<Sync>(setup);
}

}  // namespace trireme::inline v0::parallel
