#include "trireme/sync/levels/leaves_to_owners.h"

#include <ATen/Functions.h>

#include <algorithm>
#include <numeric>
#include <utility>

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

}  // namespace

SyncPlan LeavesToOwners::plan_over_all_ranks(const SyncRanks& ranks) {
  SyncPlan plan = ShardedSync::plan_over_all_ranks(ranks);
  plan.assignment = {1, ranks.size};
  return plan;
}

SyncPlan LeavesToOwners::plan_in_groups(const SyncRanks& ranks) {
  const int size = ranks.size, shard = ranks.shard == 0 ? ranks.local_size : ranks.shard;
  if (shard == 0)
    refuse_sync("parallel.sync = \"" + ranks.sync +
                    "\" shards within a host, and the hosts have different numbers of ranks",
                "Start as many ranks on every host, or set parallel.shard.");
  if (shard < 1 || size % shard != 0)
    refuse_sync("parallel.shard = " + std::to_string(shard) + " does not divide " +
                    std::to_string(size) + " ranks: " + std::to_string(size % std::max(shard, 1)) +
                    " are left over",
                "Set parallel.shard to a divisor of " + std::to_string(size) + ".");
  return {.assignment = {size / shard, shard}, .owners = shard};
}

LeavesToOwners::LeavesToOwners(const SyncSetup& setup, std::shared_ptr<WeightGather> weights)
    : ShardedSync(setup, std::move(weights), /*sums_own_part=*/true, memory_of_sums(setup)),
      on_event_(setup.on_event),
      staged_(layout_.buckets.size()) {}

std::uint32_t LeavesToOwners::plan_rounds() {
  const auto members = static_cast<std::uint32_t>(owners());
  return (plan_.share.count + members - 1) / members;
}

tensor::Finite LeavesToOwners::add_leaf(const BucketLayout::RangeIndex& place, const void* gradient,
                                        DType type) {
  const BucketLayout::Bucket& bucket = layout_.buckets[place.bucket];
  const BucketLayout::OwnedRange& part = layout_.part(place);
  BufferPool::Lease& staged = staged_[place.bucket];
  if (!staged.data) staged = exchange_.take(bucket.bytes());
  return sums_.math().add_leaf(gradient, type, weight_, {},
                               staged.data.get() + part.offset * size_of(bucket.sum), part.size());
}

void LeavesToOwners::launch(std::uint32_t bucket) {
  const auto first_leaf = round_ * static_cast<std::uint32_t>(owners());
  std::vector<std::uint32_t> from;
  for (std::uint32_t leaf = first_leaf; from.size() < static_cast<std::size_t>(owners()); ++leaf)
    from.push_back(leaf < plan_.share.count ? 1 : 0);
  const BucketLayout::Bucket& layout = layout_.buckets[bucket];
  const std::size_t pieces = std::accumulate(from.begin(), from.end(), std::size_t{0});
  ShardEvent event{
      .kind = ShardEvent::Kind::Send,
      .number = bucket,
      .bytes = (present_ ? layout.bytes() : 0) + pieces * layout.of(owner_) * size_of(layout.sum)};
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

void LeavesToOwners::fold(std::uint32_t bucket, std::uint32_t first_leaf,
                          std::span<const void* const> pieces) {
  const BucketLayout::Bucket& layout = layout_.buckets[bucket];
  for (std::size_t i = 0; i < pieces.size(); ++i)
    sums_.add(plan_.steps[first_leaf + i], bucket, layout.begin_of(owner_), pieces[i], layout.sum,
              1.0, layout.of(owner_));
}

}  // namespace trireme::inline v0::parallel
