// Level: a value of parallel.sync. A level is a class of ParameterSync in a file of its own, which
// ends with the Level that says what ranks keep and how they divide the work, and a line of
// list.inc. It puts parts together that know no level: LeavesToOwners, WeightGather.
#pragma once

#include <memory>
#include <string_view>

#include "trireme/sync/sync_setup.h"

namespace trireme::inline v0::parallel {

struct Level {
  std::string_view name, title;  // SyncPlan::sync, title
  std::string_view keeps;        // what a rank keeps, for help; may build on the line before
  SyncPlan (*plan)(const SyncRanks& ranks);
  std::unique_ptr<BucketedSync> (*make)(const SyncSetup& setup);
  bool weights = false;  // weights are sharded
  bool groups = false;   // groups of parallel.shard ranks each have a copy of the model
  bool local = false;    // ranks train separate copies (decentralised/)
  bool served = false;   // servers update the weights (ps/)
};

template <class Sync>
std::unique_ptr<BucketedSync> make_level(const SyncSetup& setup) {
  return std::make_unique<Sync>(setup);
}

}  // namespace trireme::inline v0::parallel
