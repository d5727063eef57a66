// ShardedSync: what the levels of ZeRO share. Every rank of a shard group owns a shard of each
// parameter's gradient sum, optimizer state and master weight (Rajbhandari et al. 2020,
// arXiv:1910.02054). A derived class adds how gradients reach the owners, and a WeightGather how
// weights reach the other ranks.
//
// Only siblings of the tree sum are added, so the bits are those of plain data parallel. Buckets go
// in one fixed order on all ranks: the reverse of the parameters', which is about the order in
// which backward produces them. A use without a gradient becomes a leaf of +0 as soon as backward
// has entered an earlier block. The start of a block's backward bounds the buckets under way.
#pragma once

#include <memory>
#include <vector>

#include "trireme/sync/buckets/leaf_exchange.h"
#include "trireme/sync/gathers/weight_gather.h"
#include "trireme/sync/levels/bucketed_sync.h"
#include "trireme/sync/sync_setup.h"

namespace trireme::inline v0::parallel {

class ShardedSync : public BucketedSync {
 public:
  void reserve(std::uint32_t total) final;
  void begin(std::uint32_t total, std::span<const Use> order) final;
  Pin acquire(Use use) final;
  void end_micro() final;
  void end_pass(std::uint32_t microbatch, Phase phase) final;
  Work finish() final;
  std::vector<double> chunk_squares() final;
  std::int64_t first_overflow() final;
  void drop() final {}
  Work publish() final { return weights_->publish(); }
  /// Every rank is an owner, and takes a contiguous share of the micro-batches.
  static SyncPlan plan_over_all_ranks(const SyncRanks& ranks);

 protected:
  /// Collective. `allocate` makes the memory of the sums: of this owner's part of all buckets, or
  /// of whole buckets.
  ShardedSync(const SyncSetup& setup, std::shared_ptr<WeightGather> weights, bool sums_own_part,
              LeafSums::Allocate allocate);

  /// Returns how many rounds a batch of total_ micro-batches has. plan_ is set.
  virtual std::uint32_t plan_rounds() = 0;
  int owners() const { return groups_.exchange->size(); }

  const ShardGroups groups_;
  LeafExchange exchange_;

 private:
  void take_order(std::span<const Use> order);
  std::size_t end_of_pass(std::size_t use) const;
  void pass(std::size_t use);
  void enter_backward(std::uint32_t block);
  void skip_round();
  void complete_round();
  void reduce_over_replicas();

  const std::shared_ptr<WeightGather> weights_;
  const std::vector<std::vector<Piece>>& pieces_;  // of each owner
  const std::uint32_t part_;                       // in begin()'s order
  // A rank with more buckets under way than this waits for its peers between blocks and
  // micro-batches.
  const std::size_t most_under_way_;
  // The order of uses; only the caller's thread reads it.
  std::vector<Use> order_;               // the uses of this part
  std::vector<std::size_t> place_;       // per use, WeightGather's
  std::vector<std::size_t> round_ends_;  // in order_
  std::size_t next_use_ = 0;
};

}  // namespace trireme::inline v0::parallel
