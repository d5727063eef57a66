// ZeRO-1: optimizer state is sharded over all ranks; gradient sums and weights are whole.
//
// A rank adds its contiguous micro-batches as in plain data parallel. In the last one it sends each
// owner its part of the sums, bucket by bucket. After the update owners send their weights to all.
#include <algorithm>
#include <vector>

#include "trireme/kernel/reduce.h"
#include "trireme/sync/levels/level.h"
#include "trireme/sync/levels/sharded_sync.h"

namespace trireme::inline v0::parallel {
namespace {

class Zero1 final : public ShardedSync {
 public:
  explicit Zero1(const SyncSetup& setup)
      : ShardedSync(setup, gather_after_update(setup), /*sums_own_part=*/false,
                    [group = setup.groups.exchange, device = setup.store.device()](
                        std::size_t bytes) { return group->allocate(bytes, device); }) {}

 private:
  std::uint32_t plan_rounds() override {
    num_terms_.clear();
    std::vector<kernel::LeafRange> nodes;
    for (int rank = 0; rank < owners(); ++rank) {
      const auto terms = kernel::maximal_nodes(group_share(assignment_, total_, rank), total_);
      num_terms_.push_back(static_cast<std::uint32_t>(terms.size()));
      nodes.insert(nodes.end(), terms.begin(), terms.end());
    }
    fold_steps_ = kernel::fold_steps(nodes, total_);
    return std::max(plan_.share.count, 1u);  // without a share: one round without a leaf
  }

  bool launches() const override { return last_round(); }

  void launch(std::uint32_t bucket) override {
    const std::uint32_t mine = num_terms_[static_cast<std::size_t>(rank_)];
    BufferPool::Lease lease;
    const std::byte* data = sums_.at(0, bucket, 0);
    if (mine > 1) {
      lease = arrange_terms(bucket, mine);
      data = lease.data.get();
    }
    exchange_.launch(bucket, data, mine, num_terms_, std::move(lease),
                     [this, bucket](std::span<const void* const> pieces) {
                       const BucketLayout::Bucket& own = layout_.buckets[bucket];
                       void* out = sums_.at(0, bucket, own.begin_of(owner_));
                       sums_.math().fold(own.sum, fold_steps_, pieces, out, own.of(owner_));
                     });
  }

  // A rank with several terms (if the number of ranks is no power of two) sends them together: for
  // each owner its part of all of them.
  BufferPool::Lease arrange_terms(std::uint32_t bucket, std::uint32_t num_terms) {
    const BucketLayout::Bucket& layout = layout_.buckets[bucket];
    BufferPool::Lease lease = exchange_.take(num_terms * layout.bytes());
    std::byte* to = lease.data.get();
    for (int r = 0; r < owners(); ++r) {
      const std::size_t bytes = layout.of(r) * size_of(layout.sum);
      for (std::uint32_t term = 0; term < num_terms; ++term) {
        sums_.math().copy(to, sums_.at(static_cast<int>(term), bucket, layout.begin_of(r)), bytes);
        to += bytes;
      }
    }
    return lease;
  }

  std::vector<std::uint32_t> num_terms_;  // of each rank
  std::vector<kernel::FoldStep> fold_steps_;
};

}  // namespace

Level zero1_level() {
  return {.name = "zero1",
          .title = "ZeRO-1",
          .keeps = "a part of the optimizer state",
          .plan = &ShardedSync::plan_over_all_ranks,
          .make = &make_level<Zero1>};
}

}  // namespace trireme::inline v0::parallel
