// ZeRO-3: weights are sharded too. As ZeRO-2, but each rank keeps only its own shard of the
// weights; the whole ones of a block are gathered before its use and freed after it
// (unit_gather.h).
#pragma once

#include <memory>

#include "trireme/sync/levels/zero2.h"

namespace trireme::inline v0::parallel {

class Zero3 : public Zero2 {
 public:
  static SyncPlan plan(const SyncRanks& ranks);
  explicit Zero3(const SyncSetup& setup) : Zero3(setup, own_memory_on(setup.store.device())) {}
  Work publish() final { return {}; }  // weights are gathered when they are used

 protected:
  Zero3(const SyncSetup& setup, LeafSums::Allocate allocate);

 private:
  std::unique_ptr<UnitGather> own_gather_;  // null: the pipeline's
};

}  // namespace trireme::inline v0::parallel
