// Errors of Strategy: each is known on all ranks, names its rank, and no rank applies the step.
#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include <cmath>

#include "trireme/base/error.h"
#include "trireme/kernel/assignment.h"
#include "trireme/models/models.h"
#include "trireme/models/module_block.h"
#include "trireme/optim/optimizer.h"
#include "trireme/strategy/strategy.h"
#include "trireme/strategy/strategy_test.h"
#include "trireme/sync/strategy_context.h"
#include "trireme/testing/run_ranks.h"

namespace trireme::strategy_test {
namespace {

// A rank that fails in the middle of a block still takes part in what the others wait for.
TEST(Strategy, ARankThatFailsUnderEverySyncIsNamedAndAllGoOn) {
  for (const Sync& sync : sharded_syncs()) {
    testing::run_ranks(4, [&](testing::RankContext& rank) {
      kernel::Assignment assignment;
      parallel::StrategyContext env{.world = rank.world.get()};
      env.assign = [&](const kernel::Assignment& dealt) { assignment = dealt; };
      int countdown = rank.rank == 2 ? 1 : -1;  // in its second micro-batch
      models::Blocks model = tiny_gpt();
      models::Blocks fails;
      for (const models::BlockSpec& spec : model.specs()) {
        fails.add_block(spec);
        if (spec.name == "embed")
          fails.add_block({.name = "fails", .make = [&countdown] {
                             return models::as_block([&countdown](const at::Tensor& x) {
                               if (countdown-- == 0) throw std::out_of_range("no such word");
                               return at::add(x, 0);
                             });
                           }});
      }
      for (const models::Tie& tie : model.ties()) fails.tie(tie.alias, tie.owner);
      Strategy strategy(env, fails, {.sync = sync.name, .shard = sync.shard, .bucket_bytes = 2048},
                        optim::make_optimizer(AdamW{}));
      const std::string before = strategy.weights_hash();
      try {
        strategy.step(batch_of(0, 9, rank.rank, assignment), token_loss());
        ADD_FAILURE() << "the step was applied";
      } catch (const StepRefused& error) {
        EXPECT_EQ(error.peer(), 2);
        EXPECT_NE(std::string(error.what()).find("no such word"), std::string::npos)
            << error.what();
      }
      EXPECT_EQ(strategy.weights_hash(), before);
      strategy.step(batch_of(1, 9, rank.rank, assignment), token_loss());
      EXPECT_NE(strategy.weights_hash(), before);
    });
  }
}

TEST(Strategy, ALoopThatEndsEarlyIsNamedUnderEverySync) {
  for (const Sync& sync : sharded_syncs()) {
    testing::run_ranks(4, [&](testing::RankContext& rank) {
      kernel::Assignment assignment;
      parallel::StrategyContext env{.world = rank.world.get()};
      env.assign = [&](const kernel::Assignment& dealt) { assignment = dealt; };
      Strategy strategy(env, tiny_gpt(), {.sync = sync.name, .shard = sync.shard},
                        optim::make_optimizer(AdamW{}));
      strategy.step(batch_of(0, 4, rank.rank, assignment), token_loss());
      if (rank.rank == 1) return;
      try {
        strategy.step(batch_of(1, 4, rank.rank, assignment), token_loss());
        ADD_FAILURE() << "the step was applied";
      } catch (const UnevenInput& error) {
        EXPECT_EQ(error.peer(), 1);
      }
    });
  }
}

TEST(Strategy, AnOverflowOfTheSumIsRefusedOnAllRanksUnderEverySync) {
  for (const Sync& sync : sharded_syncs()) {
    testing::run_ranks(2, [&](testing::RankContext& rank) {
      kernel::Assignment assignment;
      parallel::StrategyContext env{.world = rank.world.get()};
      env.assign = [&](const kernel::Assignment& dealt) { assignment = dealt; };
      Strategy strategy(env, models::make_mlp({.widths = {3, 2}}),
                        {.sync = sync.name, .shard = sync.shard}, optim::make_optimizer(Sgd{}));
      Batch batch{.total = 4, .global_count = 4};
      for (const std::uint32_t i : leaves_of(assignment, 4, rank.rank))
        batch.micro.push_back(
            {.index = i, .count = 1, .fields = {{"features", at::full({1, 3}, 0.1)}}});
      const Loss loss = [](const models::Value& output, const MicroBatch&) {
        return output.at(0).sum() * 1e38;
      };
      try {
        strategy.step(batch, loss);
        ADD_FAILURE() << "the step was applied";
      } catch (const StepRefused& error) {
        EXPECT_NE(std::string(error.what()).find("bias"), std::string::npos) << error.what();
      }
    });
  }
}

TEST(Strategy, ARankThatFailsIsNamedOnAllAndNothingIsApplied) {
  testing::run_ranks(3, [&](testing::RankContext& rank) {
    Strategy strategy(parallel::StrategyContext{.world = rank.world.get()}, tiny_gpt(), {},
                      optim::make_optimizer(AdamW{}));
    const std::string before = strategy.weights_hash();
    const Loss loss = [&](const models::Value& output, const MicroBatch& micro) {
      if (micro.index == 4) throw std::out_of_range("no such word");
      return token_loss()(output, micro);
    };
    try {
      strategy.step(batch_of(0, 6, rank.rank, rank.size), loss);
      ADD_FAILURE() << "the step was applied";
    } catch (const StepRefused& error) {
      EXPECT_EQ(error.peer(), 2);
      EXPECT_NE(std::string(error.what()).find("no such word"), std::string::npos) << error.what();
      EXPECT_EQ(error.exit_code(), 20);
    }
    EXPECT_EQ(strategy.weights_hash(), before);
    // The strategy goes on with the next batch.
    strategy.step(batch_of(1, 6, rank.rank, rank.size), token_loss());
    EXPECT_NE(strategy.weights_hash(), before);
  });
}

TEST(Strategy, ANanIsRefusedNamingRankAndReason) {
  testing::run_ranks(2, [&](testing::RankContext& rank) {
    Strategy strategy(parallel::StrategyContext{.world = rank.world.get()}, tiny_gpt(), {},
                      optim::make_optimizer(AdamW{}));
    const Loss loss = [&](const models::Value& output, const MicroBatch& micro) {
      const at::Tensor sum = token_loss()(output, micro);
      return micro.index == 3 ? sum * std::nan("") : sum;
    };
    try {
      strategy.step(batch_of(0, 4, rank.rank, rank.size), loss);
      ADD_FAILURE() << "the step was applied";
    } catch (const StepRefused& error) {
      EXPECT_EQ(error.peer(), 1);
      EXPECT_NE(std::string(error.what()).find("micro-batch 3"), std::string::npos);
    }
  });
}

// The output's bias gets 1e38 from each of four micro-batches: finite in every rank's own sum.
TEST(Strategy, AnOverflowThatOnlyTheSumHasIsRefusedOnAllRanks) {
  for (const double clip : {0.0, 1.0}) {
    testing::run_ranks(2, [&](testing::RankContext& rank) {
      Strategy strategy(parallel::StrategyContext{.world = rank.world.get()},
                        models::make_mlp({.widths = {3, 2}}), {.clip = clip},
                        optim::make_optimizer(Sgd{}));
      const std::string before = strategy.weights_hash();
      Batch batch{.total = 4, .global_count = 4};
      for (std::uint32_t i = 2 * static_cast<std::uint32_t>(rank.rank); batch.micro.size() < 2; ++i)
        batch.micro.push_back(
            {.index = i, .count = 1, .fields = {{"features", at::full({1, 3}, 0.1)}}});
      double scale = 1e38;
      const Loss loss = [&](const models::Value& output, const MicroBatch&) {
        return output.at(0).sum() * scale;
      };
      try {
        strategy.step(batch, loss);
        ADD_FAILURE() << "the step was applied";
      } catch (const StepRefused& error) {
        EXPECT_NE(std::string(error.what()).find("bias"), std::string::npos) << error.what();
      }
      EXPECT_EQ(strategy.weights_hash(), before);
      scale = 1;
      batch.step = 1;
      strategy.step(batch, loss);
      EXPECT_NE(strategy.weights_hash(), before);
    });
  }
}

TEST(Strategy, MicroBatchesOfAnotherRankAreRefusedWithTheWayTheyAreDealtOut) {
  for (const char* sync : {"plain", "zero1", "zero2"}) {
    testing::run_ranks(2, [&](testing::RankContext& rank) {
      Strategy strategy({.world = rank.world.get()}, tiny_gpt(), {.sync = sync},
                        optim::make_optimizer(AdamW{}));
      const bool in_turn = std::string(sync) == "zero2";
      const kernel::Assignment wrong = in_turn ? kernel::contiguous(2) : kernel::Assignment{1, 2};
      try {
        strategy.step(batch_of(0, 4, rank.rank, wrong), token_loss());
        ADD_FAILURE() << "the step was applied";
      } catch (const StepRefused& error) {
        const std::string what = error.what();
        EXPECT_NE(what.find(" instead of "), std::string::npos) << what;
        EXPECT_EQ(what.find("dealt out in turn") != std::string::npos, in_turn) << what;
      }
    });
  }
}

TEST(Strategy, AStopSignalOfOneRankReachesAllInTheSameStep) {
  testing::run_ranks(3, [&](testing::RankContext& rank) {
    int step = 0, noted = 0;
    parallel::StrategyContext env{.world = rank.world.get()};
    env.stop_signal = [&] { return rank.rank == 1 && step == 2 ? 143 : 0; };
    env.note_stop = [&](int signal) { noted = signal; };
    Strategy strategy(env, tiny_gpt(), {}, optim::make_optimizer(AdamW{}));
    for (step = 0; step < 3; ++step) {
      const StepResult result =
          strategy.step(batch_of(step, 3, rank.rank, rank.size), token_loss());
      EXPECT_EQ(result.stop_signal, step == 2 ? 143 : 0);
      EXPECT_EQ(noted, result.stop_signal) << "what the job's coordinator is told at the end";
    }
  });
}

TEST(Strategy, ALoopThatEndsEarlyIsNamedToTheOthers) {
  testing::run_ranks(3, [&](testing::RankContext& rank) {
    Strategy strategy(parallel::StrategyContext{.world = rank.world.get()}, tiny_gpt(), {},
                      optim::make_optimizer(AdamW{}));
    strategy.step(batch_of(0, 3, rank.rank, rank.size), token_loss());
    if (rank.rank == 1) return;
    try {
      strategy.step(batch_of(1, 3, rank.rank, rank.size), token_loss());
      ADD_FAILURE() << "the step was applied";
    } catch (const UnevenInput& error) {
      EXPECT_EQ(error.peer(), 1);
      EXPECT_EQ(error.exit_code(), 22);
    }
  });
}

TEST(Strategy, ALoopThatEndsEarlyIsNamedInOtherCollectivesToo) {
  testing::run_ranks(3, [&](testing::RankContext& rank) {
    Strategy strategy(parallel::StrategyContext{.world = rank.world.get()}, tiny_gpt(), {},
                      optim::make_optimizer(AdamW{}));
    if (rank.rank == 1) return;
    try {
      strategy.evaluate({batch_of(1, 3, rank.rank, rank.size)}, token_loss());
      ADD_FAILURE() << "the validation ended";
    } catch (const UnevenInput& error) {
      EXPECT_EQ(error.peer(), 1);
    }
  });
}

TEST(Strategy, DifferentModelsAreRefusedNamingTheParameter) {
  testing::run_ranks(2, [&](testing::RankContext& rank) {
    const std::int64_t hidden = rank.rank == 0 ? 4 : 5;
    try {
      Strategy strategy(parallel::StrategyContext{.world = rank.world.get()},
                        models::make_mlp({.widths = {3, hidden, 2}}), {},
                        optim::make_optimizer(Sgd{}));
      ADD_FAILURE() << "the models were taken as equal";
    } catch (const MismatchError& error) {
      EXPECT_EQ(error.label(), "layer.0.linear.weight");
    }
  });
}

TEST(Strategy, RefusesToReduceShardsAfterBackward) {
  testing::run_ranks(2, [&](testing::RankContext& rank) {
    EXPECT_THROW(Strategy({.world = rank.world.get()}, tiny_gpt(),
                          {.sync = "zero1", .overlap = false}, optim::make_optimizer(Sgd{})),
                 ConfigError);
  });
}

TEST(Strategy, RefusesWhatThisReleaseDoesNotHave) {
  testing::run_ranks(1, [&](testing::RankContext& rank) {
    const parallel::StrategyContext env{.world = rank.world.get()};
    const auto make = [&](StrategyOptions options) {
      Strategy strategy(env, tiny_gpt(), options, optim::make_optimizer(Sgd{}));
    };
    EXPECT_THROW(make({.sync = "server"}), ConfigError);
    EXPECT_THROW(make({.sync = "hybrid", .shard = 2}), ConfigError);
    EXPECT_THROW(make({.shard = 2}), ConfigError);
    EXPECT_THROW(make({.pipeline = 2}), ConfigError);
    EXPECT_THROW(make({.data = 2}), ConfigError);
    EXPECT_THROW(make({.clip = std::nan("")}), ConfigError);
    EXPECT_THROW(make({.bucket_bytes = -1}), ConfigError);
    EXPECT_THROW(make({.sync = "zero1", .server = {.staleness = 4}}), ConfigError);
    EXPECT_THROW(make({.precision = "fp8"}), ConfigError);
    EXPECT_THROW(make({.precision = "fp64"}), ConfigError);  // the model is fp32
  });
}

}  // namespace
}  // namespace trireme::strategy_test
