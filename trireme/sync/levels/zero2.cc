// ZeRO-2: gradient sums and optimizer state are sharded over all ranks; weights are whole.
#include "trireme/sync/levels/leaves_to_owners.h"
#include "trireme/sync/levels/level.h"

namespace trireme::inline v0::parallel {
namespace {

class Zero2 final : public LeavesToOwners {
 public:
  explicit Zero2(const SyncSetup& setup) : LeavesToOwners(setup, gather_after_update(setup)) {}
};

}  // namespace

Level zero2_level() {
  return {.name = "zero2",
          .title = "ZeRO-2",
          .keeps = "of the gradients, too",
          .plan = &LeavesToOwners::plan_over_all_ranks,
          .make = &make_level<Zero2>};
}

}  // namespace trireme::inline v0::parallel
