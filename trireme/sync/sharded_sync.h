// ShardedSync: ZeRO-1, 2, 3 and hybrid. Every rank of a shard group owns a shard of each
// parameter's gradient sum, optimizer state and master weight (Rajbhandari et al. 2020,
// arXiv:1910.02054), and of the weights if the store shards them (ZeRO-3).
//
//     ZeRO-1     a rank adds its contiguous micro-batches, as in plain data parallel, and in the
//                last one sends every owner its shard of the sums, bucket by bucket
//     ZeRO-2, 3  micro-batches are interleaved over the ranks (a round: one of each rank); after
//                each round the owners receive their shards of its leaves and add them in T's order
//     hybrid     as ZeRO-3 within a group; then the owners of the same shard in all groups reduce
//                their sums (kernel/assignment.h: groups take contiguous shares)
//
// Only siblings of the tree sum are added, so the bits are those of plain data parallel. Buckets go
// in one fixed order on all ranks: the reverse of the parameters', which is about the order in
// which backward produces them. A use without a gradient becomes a leaf of +0 as soon as backward
// has entered an earlier block. The start of a block's backward bounds the buckets under way.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "trireme/kernel/assignment.h"
#include "trireme/kernel/reduce.h"
#include "trireme/sync/leaf_exchange.h"
#include "trireme/sync/leaf_plan.h"
#include "trireme/sync/parameter_store.h"
#include "trireme/sync/parameter_sync.h"
#include "trireme/sync/shard_event.h"
#include "trireme/sync/unit_gather.h"

namespace trireme::inline v0::parallel {

/// A rank's groups. Gradients and weights move at the same time, so each has its own group.
struct ShardGroups {
  std::shared_ptr<comm::Communicator> exchange, gather;  // the same ranks: the owners
  std::shared_ptr<comm::Communicator> replicas;  // the owners of this shard; null if it is one
};

struct ShardedSyncOptions {
  kernel::Assignment assignment;
  int rank = 0;  // in the assignment
  std::int64_t bucket_bytes = 4 << 20;
  /// A rank with more buckets under way than this waits for its peers between blocks and
  /// micro-batches. Three: one is sent, one filled, one arrives. Unlimited if the ranks do not go
  /// through begin()'s order together: their peers may be at another pass of a pipeline, so they
  /// must not wait.
  std::size_t most_under_way = 3;
  /// For a rank of a pipeline with sharded weights: the gather of all its stages, whose begin() its
  /// owner calls, and this stage's number in it. Null: made here if weights are sharded.
  UnitGather* gather = nullptr;
  std::uint32_t part = 0;
  /// Called once per step, in begin(); its Work is part of finish().
  std::function<Work()> before_launch = {};
  OnShardEvent on_event = {};
};

class ShardedSync final : public ParameterSync {
 public:
  /// Collective: allocates arenas, here and in begin(). `store` outlives it.
  ShardedSync(ShardGroups groups, ParameterStore& store, ShardedSyncOptions options);

  void begin(std::uint32_t total, std::span<const Use> order) override;
  void begin_micro(std::uint32_t microbatch, double weight) override;
  Pin acquire(Use use) override;
  void gradient(ParameterUse use, std::uint32_t microbatch, at::Tensor leaf) noexcept override;
  void end_micro() override;
  void end_pass(std::uint32_t microbatch, Phase phase) override;
  Work finish() override;
  std::optional<Refusal> refusal() const override;
  void settle() override;
  std::vector<double> chunk_squares() override;
  std::int64_t first_overflow() override;
  void drop() override {}
  std::span<optim::OwnedSlice> owned() override { return slices_; }
  Work publish() override;
  std::size_t gradient_bytes() const override;

 private:
  bool interleaved() const { return options_.assignment.members > 1; }
  int owner() const { return groups_.exchange->rank(); }
  int owners() const { return groups_.exchange->size(); }
  void flatten_uses();
  void place_gradients();
  void make_plan(std::uint32_t total);
  void grow(std::size_t slots);
  std::byte* slot(std::size_t index, std::uint32_t bucket) const;
  void take_order(std::span<const Use> order);
  std::size_t end_of_pass(std::size_t use) const;
  void begin_round(bool present);
  void complete_round();
  void pass(std::size_t use);
  void enter_backward(std::uint32_t block);
  void close(std::uint32_t block);
  void add(std::uint32_t use, const at::Tensor& gradient);
  bool add_part(const ShardBuckets::PartPlace& place, const void* gradient, DType type);
  void arrived(std::uint32_t use);
  bool launches() const;
  void launch_ready();
  void launch(std::uint32_t bucket);
  void launch_terms(std::uint32_t bucket);
  void launch_leaves(std::uint32_t bucket);
  void fold_leaves(std::uint32_t bucket, std::uint32_t round, std::span<const void* const> pieces);
  void reduce_over_replicas();
  void refuse(const std::string& reason, int exit_code = Refusal::kNotFinite);

  ShardGroups groups_;
  ParameterStore& store_;
  ShardedSyncOptions options_;
  std::vector<Accumulated> uses_;  // flat over blocks
  std::vector<std::uint32_t> parameter_of_;
  std::vector<std::uint32_t> first_of_block_;  // and the end
  std::vector<optim::OwnedSlice> slices_;
  ShardBuckets buckets_;
  LeafExchange exchange_;
  std::unique_ptr<UnitGather> own_gather_;
  UnitGather* gather_ = nullptr;  // own_gather_, or the pipeline's; null: weights are whole

  // Sums. Interleaved: of this rank's shards only. Contiguous: of whole buckets.
  std::vector<comm::Arena> slots_;
  std::vector<std::size_t> slot_begin_;  // bytes, per bucket
  std::size_t slot_bytes_ = 0;

  std::uint32_t total_ = 0;
  LeafPlan plan_;  // interleaved: of the group's leaves; contiguous: of this rank's
  std::vector<std::vector<kernel::LeafRange>> terms_of_;  // contiguous: per rank
  std::vector<kernel::FoldStep> fold_steps_;
  std::uint32_t rounds_ = 0, round_ = 0;

  mutable std::mutex mutex_;
  std::vector<Use> order_;               // the uses of this part
  std::vector<std::size_t> place_;       // per use, the gather's uses before it
  std::vector<std::size_t> round_ends_;  // in order_
  std::size_t next_use_ = 0;
  bool open_ = false;     // between begin_micro and end_micro
  bool present_ = false;  // this rank has a micro-batch in the round
  std::uint32_t microbatch_ = 0;
  double weight_ = 1;
  std::vector<bool> seen_;                 // per use, in this round
  std::uint32_t closed_from_ = 0;          // blocks from here on are closed
  std::vector<std::size_t> arrived_;       // uses, per bucket
  std::vector<BufferPool::Lease> staged_;  // interleaved: leaves of buckets not yet launched
  std::uint32_t next_bucket_ = 0;
  std::vector<Work> works_;
  std::optional<Refusal> refusal_;
};

}  // namespace trireme::inline v0::parallel
