#include "trireme/sync/levels/hybrid.h"

#include <algorithm>

namespace trireme::inline v0::parallel {

SyncPlan Hybrid::plan(const SyncRanks& ranks) {
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
  return {.assignment = {size / shard, shard}, .owners = shard, .shards_weights = shard > 1};
}

// Each rank's sums are one shard, of which the other groups have an equal one: they reduce there.
Hybrid::Hybrid(const SyncSetup& setup)
    : Zero3(setup,
            [replicas = setup.groups.replicas, device = setup.store.device()](std::size_t bytes) {
              return replicas ? replicas->allocate(bytes, device) : own_memory_on(device)(bytes);
            }) {}

void Hybrid::reduce_further() {
  if (!groups_.replicas) return;
  for (std::uint32_t bucket = 0; bucket < layout_.buckets.size(); ++bucket)
    works_.push_back(groups_.replicas->all_reduce(sums_.terms(plan_, bucket), total_,
                                                  sums_.buffer(0, bucket),
                                                  {.label = "bucket " + std::to_string(bucket)}));
}

}  // namespace trireme::inline v0::parallel
