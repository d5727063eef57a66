// gradient() waits for nothing: it returns while another method of the same sync waits for a peer.
#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <future>

#include "trireme/models/models.h"
#include "trireme/placement/stage.h"
#include "trireme/sync/sync_setup.h"
#include "trireme/testing/run_ranks.h"

namespace trireme::parallel {
namespace {

constexpr std::uint32_t kBlocks = 8;
constexpr std::int64_t kWidth = 4;

at::Tensor ones_for(std::uint32_t parameter) {
  return parameter == 0 ? at::ones({kWidth, kWidth}) : at::ones({kWidth});
}

// A rank with one micro-batch in each step of two. Its gradients are ones.
struct OneRank {
  OneRank(testing::RankContext& context, const std::string& level, std::int64_t bucket_bytes)
      : rank(context),
        plan(plan_sync(level, context.size, 0, context.size)),
        groups(make_shard_groups(*context.world, plan)),
        store({}, {.owners = plan.owners,
                   .owner = plan.owner_of(context.rank),
                   .shards_weights = plan.shards_weights}),
        stage(models::make_mlp({.widths = std::vector(kBlocks + 1, kWidth)}), 1,
              [this](const Stage::Member& member) { store.add_block(member); }) {
    store.complete();
    sync = make_parameter_sync({.plan = plan,
                                .data = *context.world,
                                .store = store,
                                .groups = groups,
                                .options = {.bucket_bytes = bucket_bytes}});
  }
  std::uint32_t micro() const { return static_cast<std::uint32_t>(rank.rank); }

  void begin() {
    std::vector<Use> order;
    for (std::uint32_t block = 0; block < kBlocks; ++block)
      order.push_back({block, 0, Phase::Forward});
    for (std::uint32_t block = kBlocks; block-- > 0;) order.push_back({block, 0, Phase::Backward});
    sync->begin(static_cast<std::uint32_t>(rank.size), order);
    sync->begin_micro(micro(), 1);
  }
  // Every gradient but those of block `without`.
  void pass(std::uint32_t without = kBlocks) {
    for (std::uint32_t block = 0; block < kBlocks; ++block)
      sync->acquire({block, micro(), Phase::Forward});
    for (std::uint32_t block = kBlocks; block-- > 0;) {
      const Pin pin = sync->acquire({block, micro(), Phase::Backward});
      for (std::uint32_t parameter = 2; block != without && parameter-- > 0;)
        sync->gradient({block, parameter}, micro(), ones_for(parameter));
    }
  }
  // Calls gradient() for one block from another thread, as autograd may.
  bool takes_gradients_now(std::uint32_t block) {
    const auto give = [this, block] {
      for (std::uint32_t parameter = 2; parameter-- > 0;)
        sync->gradient({block, parameter}, micro(), ones_for(parameter));
    };
    given = std::async(std::launch::async, give);
    return given.wait_for(std::chrono::seconds(10)) == std::future_status::ready;
  }
  void expect_sums() {
    sync->end_micro();
    sync->finish().wait();
    EXPECT_FALSE(sync->refusal());
    sync->settle();
    for (const optim::OwnedSlice& slice : sync->owned()) {
      const auto* sum = static_cast<const float*>(slice.gradient);
      EXPECT_TRUE(std::all_of(sum, sum + slice.size(),
                              [this](float one) { return one == static_cast<float>(rank.size); }));
    }
  }

  testing::RankContext& rank;
  SyncPlan plan;
  ShardGroups groups;
  ParameterStore store;
  Stage stage;
  std::unique_ptr<ParameterSync> sync;
  std::future<void> given;
};

// Rank 0 goes as far as it can. Rank 1, which sleeps until nobody can run, holds it back.
TEST(Gradient, ReturnsWhileAcquireWaitsForWeights) {
  for (const std::string& level : level_names(&shards_weights)) {
    OneRank* first = nullptr;
    testing::run_ranks(2, [&](testing::RankContext& rank) {
      OneRank own(rank, level, 1 << 20);
      if (rank.rank == 0) {
        first = &own;
        own.begin();
        own.pass(/*without=*/5);
      } else {
        rank.waiter->sleep(std::chrono::seconds(1));
        EXPECT_TRUE(first->takes_gradients_now(5)) << level;
        own.begin();
        own.pass();
      }
      own.expect_sums();
    });
  }
}

TEST(Gradient, ReturnsWhileAcquireWaitsForBuckets) {
  for (const std::string& level : level_names(&shards_state)) {
    if (shards_weights(level)) continue;
    OneRank* first = nullptr;
    testing::run_ranks(2, [&](testing::RankContext& rank) {
      OneRank own(rank, level, /*bucket_bytes=*/1);
      if (rank.rank == 0) {
        first = &own;
        own.begin();
        own.pass(/*without=*/4);
      } else {
        rank.waiter->sleep(std::chrono::seconds(1));
        EXPECT_TRUE(first->takes_gradients_now(4)) << level;
        own.begin();
        own.pass();
      }
      own.expect_sums();
    });
  }
}

}  // namespace
}  // namespace trireme::parallel
