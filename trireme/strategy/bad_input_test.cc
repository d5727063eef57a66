// Bad input to DataParallel and Strategy: each is a clear error on every rank, or a correct step.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>

#include "trireme/base/error.h"
#include "trireme/optim/optimizer.h"
#include "trireme/strategy/bad_input_test.h"
#include "trireme/strategy/data_parallel.h"
#include "trireme/strategy/strategy.h"
#include "trireme/testing/run_ranks.h"

namespace trireme::bad_input_test {
namespace {

TEST(BadInput, ABatchWithoutABackwardPassIsRefusedOnAllRanks) {
  for (const char* sync : {"plain", "zero1", "zero2"}) {
    testing::run_ranks(2, [&](testing::RankContext& rank) {
      Net net;
      torch::optim::Adam adam(net.parameters(), 1e-2);
      DataParallel parallel({.world = rank.world.get()}, net, adam, {.sync = sync});
      loss_of(net, 0).backward();
      EXPECT_TRUE(parallel.step());
      const std::string before = parallel.weights_hash();
      EXPECT_THAT(said<StepRefused>([&] { parallel.step(); }),
                  AllOf(HasSubstr("no rank called backward()"), HasSubstr("backward(sum, 0)")));
      EXPECT_EQ(parallel.weights_hash(), before);
      if (rank.rank == 0) loss_of(net, 1).backward();  // the other has nothing to learn from
      EXPECT_TRUE(parallel.step());
      EXPECT_NE(parallel.weights_hash(), before);
    });
  }
}

TEST(BadInput, ALossOverNoItemsIsRefused) {
  for (const char* sync : {"plain", "zero1", "zero2"}) {
    testing::run_ranks(2, [&](testing::RankContext& rank) {
      Net net;
      torch::optim::Adam adam(net.parameters(), 1e-2);
      DataParallel parallel({.world = rank.world.get()}, net, adam, {.sync = sync});
      const std::string before = parallel.weights_hash();
      EXPECT_THAT(said<ConfigError>([&] { parallel.backward(loss_of(net, 0), -1); }),
                  AllOf(HasSubstr("backward(sum, -1)"), HasSubstr("0 or more")));
      parallel.backward(loss_of(net, 0), 0);
      EXPECT_THAT(said<StepRefused>([&] { parallel.step(); }),
                  AllOf(HasSubstr("summed over 0 items"), HasSubstr("backward(sum, count)")));
      EXPECT_EQ(parallel.weights_hash(), before);
      parallel.backward(loss_of(net, 0) * 0, 0);  // a batch of padding alone
      EXPECT_TRUE(parallel.step());
      parallel.backward(loss_of(net, 0), rank.rank);
      EXPECT_TRUE(parallel.step());
    });
  }
  testing::run_ranks(1, [&](testing::RankContext& rank) {
    Program program(rank, small_model(), {});
    Batch batch = program.batch(0);
    for (MicroBatch& micro : batch.micro) micro.count = 0;
    EXPECT_THAT(said<StepRefused>([&] { program.strategy.step(batch, kSquares); }),
                AllOf(HasSubstr("summed over 0 items"), HasSubstr("MicroBatch::count")));
  });
}

// The optimizer's own step() finds no gradients.
TEST(BadInput, ALoopThatKeepsTheOptimizersStepIsRefused) {
  testing::run_ranks(2, [](testing::RankContext& rank) {
    Net net;
    torch::optim::Adam adam(net.parameters(), 1e-2);
    DataParallel parallel({.world = rank.world.get()}, net, adam);
    const std::string before = parallel.weights_hash();
    const auto train = [&](int number) {
      loss_of(net, number + rank.rank).backward();
      adam.step();
      adam.zero_grad();
    };
    for (const int number : {0, 1}) train(number);
    EXPECT_THAT(said<ConfigError>([&] { train(2); }),
                AllOf(HasSubstr("step() of DataParallel never"), HasSubstr("parallel.step()")));
    EXPECT_EQ(parallel.weights_hash(), before);
  });
}

TEST(BadInput, BackwardPassesAfterTheTrainingAreNoMatter) {
  for (const bool resumed : {false, true}) {
    testing::run_ranks(2, [&](testing::RankContext& rank) {
      Net net, other;
      torch::optim::SGD sgd(net.parameters(), 0.1), second(other.parameters(), 0.1);
      DataParallel parallel({.world = rank.world.get()}, net, sgd);
      loss_of(net, 0).backward();
      parallel.step();
      DataParallel again({.world = rank.world.get()}, other, second);
      if (resumed) again.restored(parallel.metadata());
      for (int i = 0; i < 4; ++i) loss_of(resumed ? other : net, i).backward();
    });
  }
}

// A loss that is NaN, or (`finite`) a finite loss whose gradient is not finite.
Loss broken_in(std::uint32_t micro_batch, bool finite) {
  return [=](const models::Value& output, const MicroBatch& micro) {
    const at::Tensor sum = output.at(0).pow(2).sum();
    if (micro.index != micro_batch) return sum;
    return finite ? sum + (output.at(0) * 0).sqrt().sum() : sum * std::nan("");
  };
}

// All ranks skip steps 1 and 2, so the result is that of training with steps 0 and 3 only.
TEST(BadInput, GradientsThatAreNoNumbersOnOneRankAreLeftOutOnAllAndCounted) {
  for (const Sync& sync : syncs()) {
    testing::run_ranks(2, [&](testing::RankContext& rank) {
      const StrategyOptions options{.sync = sync.name, .shard = sync.shard, .skip_not_finite = 2};
      Program program(rank, small_model(), options), without(rank, small_model(), options);
      for (const int step : {0, 3}) without.step(step, kSquares);
      for (int step = 0; step < 4; ++step) {
        const bool bad = step == 1 || step == 2;
        const StepResult result = program.step(step, bad ? broken_in(3, step == 1) : kSquares);
        EXPECT_EQ(result.skipped.empty(), !bad) << step;
        if (bad) {
          EXPECT_THAT(result.skipped,
                      AllOf(HasSubstr("rank 1 refused the step"), HasSubstr("micro-batch 3")));
        }
        EXPECT_EQ(result.skipped_steps, std::min(step, 2));
      }
      EXPECT_EQ(program.strategy.weights_hash(), without.strategy.weights_hash()) << sync.name;

      // The budget is spent, here and in a run that resumes from this one's checkpoint.
      const std::string metadata = program.strategy.metadata();
      const std::string spent =
          "2 steps were left out before for such numbers, and "
          "train.skip_not_finite is 2";
      EXPECT_THAT(said<StepRefused>([&] { program.step(4, broken_in(0, false)); }),
                  AllOf(HasSubstr(spent), HasSubstr("rank 0 refused")));
      without.strategy.restored(metadata);
      EXPECT_THAT(said<StepRefused>([&] { without.step(4, broken_in(0, true)); }),
                  HasSubstr(spent));
      program.step(5, kSquares);
    });
  }
}

TEST(BadInput, GradientsThatAreNoNumbersAreCountedAtTheModulesDoor) {
  for (const char* sync : {"plain", "zero1", "zero2"}) {
    testing::run_ranks(2, [&](testing::RankContext& rank) {
      Net net;
      torch::optim::AdamW adam(net.parameters(), torch::optim::AdamWOptions(1e-2));
      DataParallel parallel({.world = rank.world.get()}, net, adam,
                            {.sync = sync, .skip_not_finite = 1});
      const auto step = [&](int number, int bad_rank) {
        const double factor = rank.rank == bad_rank ? std::nan("") : 1;
        (loss_of(net, number) * factor).backward();
        return parallel.step();
      };
      EXPECT_TRUE(step(0, -1));
      const std::string before = parallel.weights_hash();
      EXPECT_FALSE(step(1, 1));
      EXPECT_EQ(parallel.weights_hash(), before);
      EXPECT_EQ(parallel.steps(), 1);
      EXPECT_EQ(parallel.skipped_steps(), 1);
      EXPECT_THAT(parallel.metadata(), HasSubstr("\"not_finite\":1"));
      EXPECT_TRUE(step(2, -1));
      EXPECT_THAT(
          said<StepRefused>([&] { step(3, 0); }),
          AllOf(HasSubstr("1 step was left out before"), HasSubstr("skip_not_finite is 1")));
      EXPECT_TRUE(step(4, -1));
    });
  }
}

TEST(BadInput, AUsersExceptionIsNoMatterOfTheBudget) {
  testing::run_ranks(2, [&](testing::RankContext& rank) {
    Program program(rank, small_model(), {.skip_not_finite = 5});
    const Loss fails = [](const models::Value& output, const MicroBatch& micro) {
      if (micro.index == 2) throw std::out_of_range("no such word");
      return output.at(0).sum();
    };
    EXPECT_THAT(said<StepRefused>([&] { program.step(0, fails); }), HasSubstr("no such word"));
  });
}

TEST(BadInput, RanksWithoutSamplesTakePartUnderEverySync) {
  const auto trained = [](int ranks, const Sync& sync) {
    std::string hash;
    testing::run_ranks(ranks, [&](testing::RankContext& rank) {
      Program program(rank, small_model(), {.sync = sync.name, .shard = sync.shard, .clip = 0.1});
      std::int64_t step = 0;
      for (const std::uint32_t total : {5u, 1u, 2u, 1u}) program.step(step++, kSquares, total);
      const std::string own = program.strategy.weights_hash();
      if (rank.rank == 0) hash = own;
    });
    return hash;
  };
  const std::string one = trained(1, {"plain"});
  for (const Sync& sync : syncs()) EXPECT_EQ(trained(4, sync), one) << sync.name;
}

}  // namespace
}  // namespace trireme::bad_input_test
