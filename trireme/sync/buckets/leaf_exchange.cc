#include "trireme/sync/buckets/leaf_exchange.h"

#include <numeric>
#include <string>

namespace trireme::inline v0::parallel {

BufferPool::Lease LeafExchange::take(std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  return pool_.take(bytes);
}

void LeafExchange::launch(std::uint32_t bucket, const void* mine, std::uint32_t num_mine,
                          std::span<const std::uint32_t> from, BufferPool::Lease lease, Fold fold) {
  const BucketLayout::Bucket& layout = layout_.buckets[bucket];
  const std::size_t own = layout.of(group_.rank()), width = size_of(layout.sum);
  std::vector<std::size_t> send_counts, recv_counts;
  for (int r = 0; r < group_.size(); ++r) {
    send_counts.push_back(num_mine * layout.of(r));
    recv_counts.push_back(from[static_cast<std::size_t>(r)] * own);
  }
  const std::lock_guard lock(mutex_);
  UnderWay& item = under_way_.emplace_back();
  item.bucket = bucket;
  item.pieces = std::accumulate(from.begin(), from.end(), 0u);
  item.sent = std::move(lease);
  item.received = pool_.take(item.pieces * own * width);
  item.fold = std::move(fold);
  item.work =
      group_.all_to_all_v({.data = const_cast<void*>(mine),
                           .count = num_mine * layout.count,
                           .dtype = layout.sum,
                           .device = device_,
                           .owner = item.sent.data},
                          {.data = item.received.data.get(),
                           .count = item.pieces * own,
                           .dtype = layout.sum,
                           .device = device_,
                           .owner = item.received.data},
                          send_counts, recv_counts, {.label = "bucket " + std::to_string(bucket)});
}

std::optional<LeafExchange::UnderWay> LeafExchange::next(std::size_t most) {
  const std::lock_guard lock(mutex_);
  if (under_way_.empty()) return std::nullopt;
  if (under_way_.size() <= most && !under_way_.front().work.done()) return std::nullopt;
  UnderWay item = std::move(under_way_.front());
  under_way_.pop_front();
  return item;
}

// Waits and folds without the mutex, so that launch() need not wait.
void LeafExchange::drain(std::size_t most) {
  while (std::optional<UnderWay> item = next(most)) {
    tensor::wait_for(item->work, tensor::at_device(device_));
    const BucketLayout::Bucket& layout = layout_.buckets[item->bucket];
    const std::size_t bytes = layout.of(group_.rank()) * size_of(layout.sum);
    std::vector<const void*> pieces;
    for (std::uint32_t i = 0; i < item->pieces; ++i)
      pieces.push_back(item->received.data.get() + i * bytes);
    item->fold(pieces);
    const std::lock_guard lock(mutex_);
    pool_.give(std::move(item->sent));
    pool_.give(std::move(item->received));
  }
}

}  // namespace trireme::inline v0::parallel
