#include "trireme/sync/levels/zero3.h"

#include "trireme/base/check.h"

namespace trireme::inline v0::parallel {

SyncPlan Zero3::plan(const SyncRanks& ranks) {
  SyncPlan plan = Zero2::plan(ranks);
  plan.shards_weights = plan.sharded();
  return plan;
}

Zero3::Zero3(const SyncSetup& setup, LeafSums::Allocate allocate)
    : Zero2(setup, std::move(allocate)) {
  TRIREME_CHECK(store_.shards_weights());
  gather_ = setup.gather;
  begins_gather_ = gather_ == nullptr;
  if (!begins_gather_) return;
  own_gather_ = std::make_unique<UnitGather>(*groups_.gather, std::vector{&store_}, on_event_);
  gather_ = own_gather_.get();
}

}  // namespace trireme::inline v0::parallel
