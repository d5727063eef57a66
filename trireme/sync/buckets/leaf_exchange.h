// LeafExchange: sends each owner its part of buckets (bucket_layout.h) by all_to_all_v and passes
// the received pieces to the owner's fold, in the order in which the buckets were launched.
//
// launch() starts and returns; any thread may call it. drain() folds what has arrived, on the
// caller's thread, and bounds how much is under way; only it waits. Every rank of the group
// launches the same buckets in the same order.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "trireme/comm/communicator.h"
#include "trireme/sync/buckets/bucket_layout.h"
#include "trireme/sync/buckets/buffer_pool.h"

namespace trireme::inline v0::parallel {

class LeafExchange {
 public:
  /// The received pieces, each this rank's part of the bucket, by sender and in the sender's order.
  using Fold = std::function<void(std::span<const void* const> pieces)>;

  /// The buckets lie on `device`.
  LeafExchange(comm::Communicator& group, const BucketLayout& layout, Device device = {})
      : group_(group), layout_(layout), device_(device), pool_(device) {}

  BufferPool::Lease take(std::size_t bytes);

  /// `mine` holds `num_mine` whole buckets: for each owner its part of all of them. `from[r]`
  /// pieces come from rank r. `lease` (may be empty) is the memory of `mine`, given back after the
  /// send.
  void launch(std::uint32_t bucket, const void* mine, std::uint32_t num_mine,
              std::span<const std::uint32_t> from, BufferPool::Lease lease, Fold fold);
  /// Folds what has arrived, and waits until no more than `most` are under way.
  void drain(std::size_t most);

 private:
  struct UnderWay {
    std::uint32_t bucket = 0;
    std::uint32_t pieces = 0;
    BufferPool::Lease sent, received;
    Work work;
    Fold fold;
  };
  std::optional<UnderWay> next(std::size_t most);

  comm::Communicator& group_;
  const BucketLayout& layout_;
  const Device device_;
  std::mutex mutex_;
  BufferPool pool_;
  std::deque<UnderWay> under_way_;
};

}  // namespace trireme::inline v0::parallel
