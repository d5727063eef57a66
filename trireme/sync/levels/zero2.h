// ZeRO-2: gradient sums and optimizer state are sharded over all ranks; weights are whole.
//
// Micro-batches are interleaved over the ranks (a round: one of each rank). In each round owners
// receive their parts of its leaves and add them in T's order. After the update owners send their
// weights to all.
#pragma once

#include <vector>

#include "trireme/sync/levels/sharded_sync.h"

namespace trireme::inline v0::parallel {

class Zero2 : public ShardedSync {
 public:
  static SyncPlan plan(const SyncRanks& ranks);
  explicit Zero2(const SyncSetup& setup) : Zero2(setup, own_memory_on(setup.store.device())) {}

 protected:
  Zero2(const SyncSetup& setup, LeafSums::Allocate allocate);
  /// Memory of this process only.
  static LeafSums::Allocate own_memory_on(Device device);

 private:
  std::uint32_t plan_rounds() override;
  tensor::Finite add_leaf(const BucketLayout::Place& place, const void* gradient,
                          DType type) override;
  bool launches() const override { return true; }
  void launch(std::uint32_t bucket) override;
  void fold(std::uint32_t bucket, std::uint32_t first_leaf, std::span<const void* const> pieces);

  std::vector<BufferPool::Lease> staged_;  // leaves of buckets not yet launched
};

}  // namespace trireme::inline v0::parallel
