// Hybrid: ZeRO-3 within groups of ranks, each of which has a copy of the model (Zhao et al. 2023,
// arXiv:2304.11277, HYBRID_SHARD). Groups take contiguous shares of the micro-batches
// (kernel/assignment.h); at the end of a step the owners of the same shard in all groups reduce
// their sums.
#pragma once

#include "trireme/sync/levels/zero3.h"

namespace trireme::inline v0::parallel {

class Hybrid final : public Zero3 {
 public:
  static SyncPlan plan(const SyncRanks& ranks);
  explicit Hybrid(const SyncSetup& setup);

 private:
  void reduce_further() override;
};

}  // namespace trireme::inline v0::parallel
