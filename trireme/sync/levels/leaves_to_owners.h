// LeavesToOwners: micro-batches are interleaved over a group of ranks (a round: one of each rank).
// In each round owners receive their parts of its leaves and add them in T's order. A rank keeps
// sums of its own part only. With several groups, the owners of the same shard in all of them
// reduce their sums at the end of a step.
#pragma once

#include <memory>
#include <vector>

#include "trireme/sync/levels/sharded_sync.h"

namespace trireme::inline v0::parallel {

class LeavesToOwners : public ShardedSync {
 public:
  /// All ranks are one group.
  static SyncPlan plan_over_all_ranks(const SyncRanks& ranks);
  /// Groups of parallel.shard ranks, or of a host's, take contiguous shares of the micro-batches.
  static SyncPlan plan_in_groups(const SyncRanks& ranks);

 protected:
  LeavesToOwners(const SyncSetup& setup, std::shared_ptr<WeightGather> weights);

 private:
  std::uint32_t plan_rounds() final;
  bool launches() const final { return true; }
  tensor::Finite add_leaf(const BucketLayout::RangeIndex& place, const void* gradient,
                          DType type) final;
  void launch(std::uint32_t bucket) final;
  void fold(std::uint32_t bucket, std::uint32_t first_leaf, std::span<const void* const> pieces);
  void tell(const ShardEvent& event) const {
    if (on_event_) on_event_(event);
  }

  const OnShardEvent on_event_;
  std::vector<BufferPool::Lease> staged_;  // leaves of buckets not yet launched
};

}  // namespace trireme::inline v0::parallel
