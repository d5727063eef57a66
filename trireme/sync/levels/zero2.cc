#include "trireme/sync/levels/zero2.h"

#include <ATen/Functions.h>

#include <numeric>
#include <utility>

#include "trireme/tensor/convert.h"
#include "trireme/tensor/devices/device.h"

namespace trireme::inline v0::parallel {

SyncPlan Zero2::plan(const SyncRanks& ranks) {
  SyncPlan plan = over_all_ranks(ranks);
  plan.assignment = {1, ranks.size};
  return plan;
}

Zero2::Zero2(const SyncSetup& setup, LeafSums::Allocate allocate)
    : ShardedSync(setup, /*sums_own_part=*/true, std::move(allocate)),
      staged_(layout_.buckets.size()) {}

LeafSums::Allocate Zero2::own_memory_on(Device device) {
  return [device](std::size_t bytes) -> comm::Arena {
    const Buffer buffer =
        tensor::to_buffer(at::zeros({static_cast<std::int64_t>(bytes)},
                                    at::TensorOptions(tensor::at_device(device)).dtype(at::kByte)));
    return {{static_cast<std::byte*>(buffer.data), bytes}, buffer.owner, device};
  };
}

std::uint32_t Zero2::plan_rounds() {
  const auto members = static_cast<std::uint32_t>(owners());
  return (plan_.share.count + members - 1) / members;
}

tensor::Finite Zero2::add_leaf(const BucketLayout::Place& place, const void* gradient, DType type) {
  const BucketLayout::Bucket& bucket = layout_.buckets[place.bucket];
  const BucketLayout::Part& part = layout_.part(place);
  BufferPool::Lease& staged = staged_[place.bucket];
  if (!staged.data) staged = exchange_.take(bucket.bytes());
  return sums_.math().add_leaf(gradient, type, weight_, {},
                               staged.data.get() + part.offset * size_of(bucket.sum), part.size());
}

void Zero2::launch(std::uint32_t bucket) {
  const auto first_leaf = round_ * static_cast<std::uint32_t>(owners());
  std::vector<std::uint32_t> from;
  for (std::uint32_t leaf = first_leaf; leaf < first_leaf + static_cast<std::uint32_t>(owners());
       ++leaf)
    from.push_back(leaf < plan_.share.count ? 1 : 0);
  const BucketLayout::Bucket& layout = layout_.buckets[bucket];
  const std::size_t pieces = std::accumulate(from.begin(), from.end(), std::size_t{0});
  ShardEvent event{
      .kind = ShardEvent::Kind::Send,
      .number = bucket,
      .bytes = (present_ ? layout.bytes() : 0) + pieces * layout.of(owner()) * size_of(layout.sum)};
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

void Zero2::fold(std::uint32_t bucket, std::uint32_t first_leaf,
                 std::span<const void* const> pieces) {
  const BucketLayout::Bucket& layout = layout_.buckets[bucket];
  for (std::size_t i = 0; i < pieces.size(); ++i)
    sums_.add(plan_.steps[first_leaf + i], bucket, layout.begin_of(owner()), pieces[i], layout.sum,
              1.0, layout.of(owner()));
}

}  // namespace trireme::inline v0::parallel
