// ZeRO-3: weights are sharded too. Each rank keeps only its own shard of the weights; the whole
// ones of a block are gathered before its use and freed after it.
#include "trireme/sync/levels/leaves_to_owners.h"
#include "trireme/sync/levels/level.h"

namespace trireme::inline v0::parallel {
namespace {

class Zero3 final : public LeavesToOwners {
 public:
  explicit Zero3(const SyncSetup& setup) : LeavesToOwners(setup, gather_before_use(setup)) {}
};

}  // namespace

Level zero3_level() {
  return {.name = "zero3",
          .title = "ZeRO-3",
          .keeps = "of the weights, too",
          .plan = &LeavesToOwners::plan_over_all_ranks,
          .make = &make_level<Zero3>,
          .weights = true};
}

}  // namespace trireme::inline v0::parallel
