// ZeRO-1: optimizer state is sharded over all ranks; gradient sums and weights are whole.
//
// A rank adds its contiguous micro-batches as in plain data parallel. In the last one it sends each
// owner its part of the sums, bucket by bucket. After the update owners send their weights to all.
#pragma once

#include <vector>

#include "trireme/kernel/reduce.h"
#include "trireme/sync/levels/sharded_sync.h"

namespace trireme::inline v0::parallel {

class Zero1 final : public ShardedSync {
 public:
  static SyncPlan plan(const SyncRanks& ranks) { return over_all_ranks(ranks); }
  explicit Zero1(const SyncSetup& setup);

 private:
  std::uint32_t plan_rounds() override;
  bool launches() const override { return last_round(); }
  void launch(std::uint32_t bucket) override;
  BufferPool::Lease arrange_terms(std::uint32_t bucket, std::uint32_t num_terms);

  std::vector<std::uint32_t> num_terms_;  // of each rank
  std::vector<kernel::FoldStep> fold_steps_;
};

}  // namespace trireme::inline v0::parallel
