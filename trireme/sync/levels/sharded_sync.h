// ShardedSync: what the levels of ZeRO share. Every rank of a shard group owns a shard of each
// parameter's gradient sum, optimizer state and master weight (Rajbhandari et al. 2020,
// arXiv:1910.02054). A level (zero1.cc, zero2.cc) adds how gradients reach the owners.
//
// Only siblings of the tree sum are added, so the bits are those of plain data parallel. Buckets go
// in one fixed order on all ranks: the reverse of the parameters', which is about the order in
// which backward produces them. A use without a gradient becomes a leaf of +0 as soon as backward
// has entered an earlier block. The start of a block's backward bounds the buckets under way.
#pragma once

#include <memory>
#include <vector>

#include "trireme/sync/buckets/leaf_exchange.h"
#include "trireme/sync/gathers/unit_gather.h"
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
  /// All-gathers whole weights, unless they are gathered when they are used.
  Work publish() final;

  /// Every rank is an owner, and takes a contiguous share of the micro-batches.
  static SyncPlan plan_over_all_ranks(const SyncRanks& ranks);

 protected:
  /// Collective. `allocate` makes the memory of the sums: of this owner's part of all buckets, or
  /// of whole buckets.
  ShardedSync(const SyncSetup& setup, bool sums_own_part, LeafSums::Allocate allocate);

  /// Returns how many rounds a batch of total_ micro-batches has. plan_ is set.
  virtual std::uint32_t plan_rounds() = 0;

  int owner() const { return owner_; }
  int owners() const { return groups_.exchange->size(); }
  void tell(const ShardEvent& event) const {
    if (on_event_) on_event_(event);
  }

  const ShardGroups groups_;
  ParameterStore& store_;
  const OnShardEvent on_event_;
  const std::uint32_t part_;  // in begin()'s order
  LeafExchange exchange_;
  UnitGather* gather_ = nullptr;            // of the weights; null: they are whole
  std::unique_ptr<UnitGather> own_gather_;  // gather_, unless it is the pipeline's

 private:
  void take_order(std::span<const Use> order);
  std::size_t end_of_pass(std::size_t use) const;
  void pass(std::size_t use);
  void enter_backward(std::uint32_t block);
  void skip_round();
  void complete_round();
  void reduce_over_replicas();

  // A rank with more buckets under way than this waits for its peers between blocks and
  // micro-batches.
  const std::size_t most_under_way_;
  // The order of uses; only the caller's thread reads it.
  std::vector<Use> order_;               // the uses of this part
  std::vector<std::size_t> place_;       // per use, the gather's uses before it
  std::vector<std::size_t> round_ends_;  // in order_
  std::size_t next_use_ = 0;
};

}  // namespace trireme::inline v0::parallel
