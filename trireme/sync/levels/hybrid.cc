// Hybrid: ZeRO-3 within groups of ranks, each of which has a copy of the model (Zhao et al. 2023,
// arXiv:2304.11277, HYBRID_SHARD).
#include "trireme/sync/levels/leaves_to_owners.h"
#include "trireme/sync/levels/level.h"

namespace trireme::inline v0::parallel {
namespace {

class Hybrid final : public LeavesToOwners {
 public:
  explicit Hybrid(const SyncSetup& setup) : LeavesToOwners(setup, gather_before_use(setup)) {}
};

}  // namespace

Level hybrid_level() {
  return {.name = "hybrid",
          .title = "hybrid",
          .keeps = "as zero3 within a host",
          .plan = &LeavesToOwners::plan_in_groups,
          .make = &make_level<Hybrid>,
          .weights = true,
          .groups = true};
}

}  // namespace trireme::inline v0::parallel
