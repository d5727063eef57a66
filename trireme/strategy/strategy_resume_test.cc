// Strategy's state: saved under one parallel.sync and restored under another, with equal bits.
#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include <map>
#include <mutex>

#include "trireme/base/error.h"
#include "trireme/kernel/assignment.h"
#include "trireme/optim/optimizer.h"
#include "trireme/strategy/strategy.h"
#include "trireme/strategy/strategy_test.h"
#include "trireme/sync/strategy_context.h"
#include "trireme/testing/run_ranks.h"

namespace trireme::strategy_test {
namespace {

// The state of any sync on any number of ranks, joined, is that of plain on one rank, and resumes
// any other.
TEST(Strategy, EverySyncResumesFromEveryOther) {
  struct Saved {
    std::map<std::string, at::Tensor> whole;
    std::string metadata;
  };
  const std::vector<std::pair<int, Sync>> layouts = {
      {1, {}}, {2, {"zero1"}}, {3, {"zero2"}}, {4, {"zero3"}}, {4, {"hybrid", 2}}};
  const auto run = [&](int ranks, const Sync& sync, const Saved* from, int first, int last) {
    std::vector<Saved> saved(static_cast<std::size_t>(ranks));
    std::mutex mutex;
    Saved whole;
    testing::run_ranks(ranks, [&](testing::RankContext& rank) {
      kernel::Assignment assignment;
      parallel::StrategyContext env{.world = rank.world.get()};
      env.assign = [&](const kernel::Assignment& dealt) { assignment = dealt; };
      Strategy strategy(env, tiny_gpt("bf16"),
                        {.sync = sync.name, .shard = sync.shard, .precision = "bf16"},
                        optim::make_optimizer(AdamW{.learning_rate = 1e-2}));
      if (from != nullptr) {
        for (const NamedShard& shard : strategy.state())
          shard.local.flatten().copy_(
              from->whole.at(shard.name).flatten().narrow(0, shard.begin, shard.end - shard.begin));
        strategy.restored(from->metadata);
      }
      for (int step = first; step < last; ++step)
        strategy.step(batch_of(step, 5, rank.rank, assignment), token_loss());
      const auto state = strategy.state();
      const std::lock_guard lock(mutex);
      whole.metadata = strategy.metadata();
      for (const NamedShard& shard : state) {
        at::Tensor& tensor = whole.whole[shard.name];
        if (!tensor.defined()) tensor = at::full(shard.shape, std::nan(""), shard.local.options());
        tensor.view({-1})
            .narrow(0, shard.begin, shard.end - shard.begin)
            .copy_(shard.local.flatten());
      }
    });
    return whole;
  };
  const Saved half = run(1, {}, nullptr, 0, 2), end = run(1, {}, nullptr, 0, 4);
  for (const auto& [ranks, sync] : layouts) {
    const Saved own = run(ranks, sync, nullptr, 0, 2);
    EXPECT_EQ(own.whole.size(), half.whole.size());
    for (const auto& [name, tensor] : half.whole)
      EXPECT_TRUE(at::equal(own.whole.at(name), tensor)) << sync.name << ": " << name;
    const Saved resumed = run(ranks, sync, &half, 2, 4);
    for (const auto& [name, tensor] : end.whole)
      EXPECT_TRUE(at::equal(resumed.whole.at(name), tensor)) << sync.name << ": " << name;
  }
}

std::vector<OptimizerOptions> every_optimizer() {
  std::vector<OptimizerOptions> all;
  for (const std::string& name : optim::optimizer_names())
    all.push_back(optim::optimizer_of(name, {.learning_rate = 1e-2, .momentum = 0.9}));
  return all;
}

class StrategyResumes : public ::testing::TestWithParam<OptimizerOptions> {};
INSTANTIATE_TEST_SUITE_P(Every, StrategyResumes, ::testing::ValuesIn(every_optimizer()));

TEST_P(StrategyResumes, FromItsStateWithEqualBits) {
  testing::run_ranks(2, [&](testing::RankContext& rank) {
    const auto make = [&] {
      return std::make_unique<Strategy>(parallel::StrategyContext{.world = rank.world.get()},
                                        tiny_gpt("bf16"), StrategyOptions{.precision = "bf16"},
                                        optim::make_optimizer(GetParam()));
    };
    const auto run = [&](Strategy& strategy, int from, int to) {
      for (int step = from; step < to; ++step)
        strategy.step(batch_of(step, 4, rank.rank, rank.size), token_loss());
    };
    auto straight = make();
    run(*straight, 0, 3);
    std::map<std::string, at::Tensor> saved;
    for (const NamedShard& shard : straight->state()) saved[shard.name] = shard.local.clone();
    const std::string metadata = straight->metadata();
    run(*straight, 3, 5);
    auto resumed = make();
    for (const NamedShard& shard : resumed->state()) {
      ASSERT_TRUE(saved.contains(shard.name)) << shard.name;
      shard.local.copy_(saved.at(shard.name));
    }
    resumed->restored(metadata);
    run(*resumed, 3, 5);
    EXPECT_EQ(resumed->weights_hash(), straight->weights_hash());
    EXPECT_THROW(resumed->restored("{}"), CheckpointError);
  });
}

// Every rank goes on from its own residual; under a pipeline from that of its stage.
TEST(Strategy, CompressedTrainingResumesWithEqualBits) {
  for (const char* compression :
       {"topk:0.1", "randomk:0.1", "onebit", "powersgd:2,0", "powersgd:2,4"}) {
    for (const auto& [ranks, pipeline] : {std::pair{2, 1}, {3, 1}, {4, 2}}) {
      testing::run_ranks(ranks, [&, pipeline = pipeline](testing::RankContext& rank) {
        kernel::Assignment assignment;
        parallel::StrategyContext env{.world = rank.world.get()};
        env.assign = [&](const kernel::Assignment& dealt) { assignment = dealt; };
        const auto make = [&] {
          return std::make_unique<Strategy>(env, tiny_gpt(),
                                            StrategyOptions{.pipeline = pipeline,
                                                            .clip = 0.5,
                                                            .bucket_bytes = 2048,
                                                            .compression = compression},
                                            optim::make_optimizer(AdamW{.learning_rate = 1e-2}));
        };
        const auto run = [&](Strategy& strategy, int from, int to) {
          for (int step = from; step < to; ++step)
            strategy.step(batch_of(step, 5, rank.rank, assignment), token_loss());
        };
        auto straight = make();
        run(*straight, 0, 3);
        std::map<std::string, at::Tensor> saved;
        for (const NamedShard& shard : straight->state()) saved[shard.name] = shard.local.clone();
        const std::string metadata = straight->metadata();
        run(*straight, 3, 6);
        auto resumed = make();
        for (const NamedShard& shard : resumed->state()) shard.local.copy_(saved.at(shard.name));
        resumed->restored(metadata);
        run(*resumed, 3, 6);
        EXPECT_EQ(resumed->weights_hash(), straight->weights_hash())
            << compression << " on " << rank.size << " ranks, " << pipeline << " stages";
      });
    }
  }
}

TEST(Strategy, RefusesTheStateOfAnotherOptimizer) {
  testing::run_ranks(1, [&](testing::RankContext& rank) {
    const parallel::StrategyContext env{.world = rank.world.get()};
    const Strategy lamb(env, tiny_gpt(), {}, optim::make_optimizer(Lamb{}));
    Strategy adamw(env, tiny_gpt(), {}, optim::make_optimizer(AdamW{}));
    try {
      adamw.restored(lamb.metadata());
      FAIL() << "no error";
    } catch (const CheckpointError& error) {
      EXPECT_NE(std::string(error.what()).find("optimizer lamb, and this run has adamw"),
                std::string::npos)
          << error.what();
    }
  });
}

}  // namespace
}  // namespace trireme::strategy_test
