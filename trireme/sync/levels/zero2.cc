// ZeRO-2: gradient sums and optimizer state are sharded over all ranks; weights are whole.
//
// Micro-batches are interleaved over the ranks (a round: one of each rank). In each round owners
// receive their parts of its leaves and add them in T's order. After the update owners send their
// weights to all.
//
// ZeRO-3: weights are sharded too. Each rank keeps only its own shard of the weights; the whole ones
// of a block are gathered before its use and freed after it (unit_gather.h).
//
// Hybrid: ZeRO-3 within groups of ranks, each of which has a copy of the model (Zhao et al. 2023,
// arXiv:2304.11277, HYBRID_SHARD). Groups take contiguous shares of the micro-batches
// (kernel/assignment.h); at the end of a step the owners of the same shard in all groups reduce
// their sums.
#include <ATen/Functions.h>

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "trireme/sync/levels/level.h"
#include "trireme/sync/levels/sharded_sync.h"
#include "trireme/tensor/convert.h"
#include "trireme/tensor/devices/device.h"

namespace trireme::inline v0::parallel {
namespace {

// Sums that replicas reduce lie in arenas of their group, others in memory of this process.
LeafSums::Allocate memory_of_sums(const SyncSetup& setup) {
  return [replicas = setup.groups.replicas,
          device = setup.store.device()](std::size_t bytes) -> comm::Arena {
    if (replicas) return replicas->allocate(bytes, device);
    const Buffer buffer =
        tensor::to_buffer(at::zeros({static_cast<std::int64_t>(bytes)},
                                    at::TensorOptions(tensor::at_device(device)).dtype(at::kByte)));
    return {{static_cast<std::byte*>(buffer.data), bytes}, buffer.owner, device};
  };
}

class Zero2 final : public ShardedSync {
 public:
  explicit Zero2(const SyncSetup& setup)
      : ShardedSync(setup, /*sums_own_part=*/true, memory_of_sums(setup)),
        staged_(layout_.buckets.size()) {}

 private:
  std::uint32_t plan_rounds() override {
    const auto members = static_cast<std::uint32_t>(owners());
    return (plan_.share.count + members - 1) / members;
  }

  bool launches() const override { return true; }

  tensor::Finite add_leaf(const BucketLayout::RangeIndex& place, const void* gradient,
                          DType type) override {
    const BucketLayout::Bucket& bucket = layout_.buckets[place.bucket];
    const BucketLayout::OwnedRange& part = layout_.part(place);
    BufferPool::Lease& staged = staged_[place.bucket];
    if (!staged.data) staged = exchange_.take(bucket.bytes());
    return sums_.math().add_leaf(gradient, type, weight_, {},
                                 staged.data.get() + part.offset * size_of(bucket.sum),
                                 part.size());
  }

  void launch(std::uint32_t bucket) override {
    const auto first_leaf = round_ * static_cast<std::uint32_t>(owners());
    std::vector<std::uint32_t> from;
    for (std::uint32_t leaf = first_leaf; leaf < first_leaf + static_cast<std::uint32_t>(owners());
         ++leaf)
      from.push_back(leaf < plan_.share.count ? 1 : 0);
    const BucketLayout::Bucket& layout = layout_.buckets[bucket];
    const std::size_t pieces = std::accumulate(from.begin(), from.end(), std::size_t{0});
    ShardEvent event{.kind = ShardEvent::Kind::Send,
                     .number = bucket,
                     .bytes = (present_ ? layout.bytes() : 0) +
                              pieces * layout.of(owner()) * size_of(layout.sum)};
    tell(event);
    event.kind = ShardEvent::Kind::Fold;
    BufferPool::Lease lease = std::exchange(staged_[bucket], {});
    const void* mine = lease.data.get();
    exchange_.launch(bucket, mine, present_ ? 1 : 0, from, std::move(lease),
                     [this, event, first_leaf](std::span<const void* const> received) {
                       fold(event.number, first_leaf, received);
                       tell(event);
                     });
  }

  void fold(std::uint32_t bucket, std::uint32_t first_leaf, std::span<const void* const> pieces) {
    const BucketLayout::Bucket& layout = layout_.buckets[bucket];
    for (std::size_t i = 0; i < pieces.size(); ++i)
      sums_.add(plan_.steps[first_leaf + i], bucket, layout.begin_of(owner()), pieces[i],
                layout.sum, 1.0, layout.of(owner()));
  }

  std::vector<BufferPool::Lease> staged_;  // leaves of buckets not yet launched
};

SyncPlan plan_zero2(const SyncRanks& ranks) {
  SyncPlan plan = ShardedSync::plan_over_all_ranks(ranks);
  plan.assignment = {1, ranks.size};
  return plan;
}

SyncPlan plan_hybrid(const SyncRanks& ranks) {
  const int size = ranks.size, shard = ranks.shard == 0 ? ranks.local_size : ranks.shard;
  if (shard == 0)
    refuse_sync(
        "parallel.sync = \"hybrid\" shards within a host, and the hosts have different numbers "
        "of ranks",
        "Start as many ranks on every host, or set parallel.shard.");
  if (shard < 1 || size % shard != 0)
    refuse_sync("parallel.shard = " + std::to_string(shard) + " does not divide " +
                    std::to_string(size) + " ranks: " + std::to_string(size % std::max(shard, 1)) +
                    " are left over",
                "Set parallel.shard to a divisor of " + std::to_string(size) + ".");
  return {.assignment = {size / shard, shard}, .owners = shard};
}

}  // namespace

Level zero2_level() {
  return {.name = "zero2",
          .title = "ZeRO-2",
          .plan = &plan_zero2,
          .make = &make_level<Zero2>,
          .rounds = true};
}
Level zero3_level() {
  Level level = zero2_level();
  level.name = "zero3";
  level.title = "ZeRO-3";
  level.weights = true;
  return level;
}
Level hybrid_level() {
  Level level = zero3_level();
  level.name = level.title = "hybrid";
  level.plan = &plan_hybrid;
  level.groups = true;
  return level;
}

}  // namespace trireme::inline v0::parallel
