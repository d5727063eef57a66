// Errors of DataParallel: each names the rank, the parameter or the option, on all ranks.
#include <ATen/Functions.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adamw.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/sgd.h>

#include <memory>

#include "trireme/base/error.h"
#include "trireme/kernel/assignment.h"
#include "trireme/strategy/data_parallel.h"
#include "trireme/strategy/data_parallel_test.h"
#include "trireme/strategy/shares.h"
#include "trireme/sync/strategy_context.h"
#include "trireme/testing/run_ranks.h"

namespace trireme::data_parallel_test {
namespace {

TEST(DataParallel, SharesThatItCannotHaveAreRefused) {
  testing::run_ranks(2, [](testing::RankContext& rank) {
    Net net;
    torch::optim::SGD sgd(net.parameters(), torch::optim::SGDOptions(1e-2));
    const auto made = [&](const DataParallelOptions& options) {
      return DataParallel({.world = rank.world.get()}, net, sgd, options);
    };
    EXPECT_THROW(made({.shares = "auto"}), ConfigError);
    EXPECT_THROW(made({.sync = "zero2", .shares = "2:1"}), ConfigError);
    EXPECT_THROW(made({.shares = "2:1:1"}), ConfigError);
    // Without a Sampler, each rank has one micro-batch.
    DataParallel parallel({.world = rank.world.get()}, net, sgd, {.shares = "1:9"});
    mean_loss(net, rank.rank, 1).backward();
    EXPECT_THROW(parallel.step(), ConfigError);
  });
}

// Three batches per epoch. The third has two micro-batches, none of them for rank 0. Rank 0
// therefore takes part in the third batch inside the step() that ends the second.
TEST(DataParallel, KnowsWhereARankWithoutAShareDoesNotReturn) {
  testing::run_ranks(3, [&](testing::RankContext& rank) {
    auto plan = std::make_shared<Plan>(8, 3, 1, rank.rank, kernel::contiguous(3));
    parallel::StrategyContext env{.world = rank.world.get()};
    env.input->set_plan(plan);
    env.stop_signal = [] { return 143; };
    Net net;
    torch::optim::SGD sgd(net.parameters(), torch::optim::SGDOptions(1e-2));
    DataParallel parallel(env, net, sgd);
    std::vector<std::pair<std::int64_t, bool>> seen;  // steps done, all_ranks_return()
    for (int epoch = 0; epoch < 2; ++epoch) {
      for (const auto& [first, count] : plan->loader()) {
        mean_loss(net, first, count).backward();
        if (parallel.step()) seen.emplace_back(parallel.steps(), parallel.all_ranks_return());
      }
      plan->next_epoch();
    }
    const std::vector<std::pair<std::int64_t, bool>> with_share = {
        {1, true}, {2, false}, {3, true}, {4, true}, {5, false}, {6, true}};
    const std::vector<std::pair<std::int64_t, bool>> without = {
        {1, true}, {3, true}, {4, true}, {6, true}};
    EXPECT_EQ(seen, rank.rank > 0 ? with_share : without) << "rank " << rank.rank;
    EXPECT_EQ(parallel.stop_signal(), 143);
  });
}

// Ranks allocate together what their gradients take, which must not be the first difference that they see.
TEST(DataParallel, NamesTheParameterInWhichTheRanksModelsDiffer) {
  for (const bool frozen : {false, true}) {
    for (const char* sync : {"plain", "zero1", "zero2"}) {
      testing::run_ranks(2, [&](testing::RankContext& rank) {
        torch::nn::Linear net(100, frozen ? 100 : 100 + 50 * rank.rank);
        if (frozen && rank.rank == 1) net->weight.set_requires_grad(false);
        torch::optim::SGD sgd(net->parameters(), torch::optim::SGDOptions(1e-2));
        const parallel::StrategyContext env{.world = rank.world.get()};
        try {
          DataParallel(env, *net, sgd, {.sync = sync});
          FAIL() << sync;
        } catch (const MismatchError& error) {
          EXPECT_NE(std::string(error.what()).find("\"weight\" on this rank) differs"),
                    std::string::npos)
              << error.what();
        }
      });
    }
  }
}

TEST(DataParallel, AStepOfTheOptimizerItselfIsCaughtAndNamedUnderZero) {
  for (const char* sync : {"zero1", "zero2"}) {
    testing::run_ranks(2, [&](testing::RankContext& rank) {
      Net net;
      torch::optim::AdamW adam(net.parameters(), torch::optim::AdamWOptions(1e-2));
      DataParallel parallel(parallel::StrategyContext{.world = rank.world.get()}, net, adam,
                            {.sync = sync});
      const auto refusal = [&](auto&& act) -> std::string {
        try {
          act();
        } catch (const ConfigError& error) {
          return error.what();
        }
        return "nothing was thrown";
      };
      mean_loss(net, 0, 1).backward();
      EXPECT_TRUE(parallel.step());
      const std::string before = parallel.weights_hash();
      adam.zero_grad();
      mean_loss(net, 1, 1).backward();
      adam.step();
      EXPECT_EQ(parallel.weights_hash(), before);
      // The error comes in the next step(), or in the next backward() if there is no step().
      EXPECT_NE(refusal([&] { parallel.step(); }).find("step() was called directly"),
                std::string::npos);
      EXPECT_NE(refusal([&] { mean_loss(net, 2, 1).backward(); }).find("parallel.step()"),
                std::string::npos);
    });
  }
}

TEST(DataParallel, ALoopThatEndsEarlyIsNamedToTheOthers) {
  testing::run_ranks(3, [&](testing::RankContext& rank) {
    Net net;
    torch::optim::SGD sgd(net.parameters(), torch::optim::SGDOptions(0.1));
    DataParallel parallel(parallel::StrategyContext{.world = rank.world.get()}, net, sgd);
    const int mine = rank.rank == 2 ? 2 : 4;
    try {
      for (int step = 0; step < mine; ++step) {
        mean_loss(net, step, 1).backward();
        parallel.step();
      }
      EXPECT_EQ(rank.rank, 2);
    } catch (const UnevenInput& error) {
      EXPECT_NE(rank.rank, 2);
      EXPECT_EQ(error.peer(), 2);
      EXPECT_NE(std::string(error.what()).find("rank 2's loop ended"), std::string::npos);
    }
  });
}

TEST(DataParallel, RefusesTwoBackwardPassesInOneMicroBatchOnAllRanks) {
  testing::run_ranks(2, [&](testing::RankContext& rank) {
    Net net;
    torch::optim::SGD sgd(net.parameters(), torch::optim::SGDOptions(0.1));
    DataParallel parallel(parallel::StrategyContext{.world = rank.world.get()}, net, sgd);
    mean_loss(net, 0, 1).backward();
    if (rank.rank == 1) mean_loss(net, 0, 1).backward();
    EXPECT_THROW(parallel.step(), StepRefused);
    mean_loss(net, 0, 1).backward();
    EXPECT_TRUE(parallel.step());
  });
}

TEST(DataParallel, ANanIsRefusedNamingTheParameter) {
  testing::run_ranks(2, [&](testing::RankContext& rank) {
    Net net;
    torch::optim::SGD sgd(net.parameters(), torch::optim::SGDOptions(0.1));
    DataParallel parallel(parallel::StrategyContext{.world = rank.world.get()}, net, sgd);
    const std::string before = parallel.weights_hash();
    (mean_loss(net, 0, 1) * (rank.rank == 1 ? std::nan("") : 1.0)).backward();
    try {
      parallel.step();
      ADD_FAILURE() << "the step was applied";
    } catch (const StepRefused& error) {
      EXPECT_EQ(error.peer(), 1);
      EXPECT_NE(std::string(error.what()).find("second.bias"), std::string::npos) << error.what();
    }
    EXPECT_EQ(parallel.weights_hash(), before);
  });
}

// 2e38 is finite on every rank; the sum of two is not (FLT_MAX is 3.4e38).
TEST(DataParallel, AnOverflowThatOnlyTheSumHasIsRefusedOnAllRanks) {
  for (const int ranks : {2, 3, 5}) {
    for (const double clip : {0.0, 1.0}) {
      testing::run_ranks(ranks, [&](testing::RankContext& rank) {
        Net net(true);
        torch::optim::SGD sgd(net.parameters(), torch::optim::SGDOptions(0.1));
        DataParallel parallel(parallel::StrategyContext{.world = rank.world.get()}, net, sgd,
                              {.clip = clip});
        const std::string before = parallel.weights_hash();
        (net.second->bias * 2e38).sum().backward();
        try {
          parallel.step();
          ADD_FAILURE() << "the step was applied";
        } catch (const StepRefused& error) {
          EXPECT_NE(std::string(error.what()).find("second.bias"), std::string::npos)
              << error.what();
          EXPECT_EQ(error.exit_code(), 21);
        }
        EXPECT_EQ(parallel.weights_hash(), before);
        mean_loss(net, 0, 2).backward();
        EXPECT_TRUE(parallel.step());
        EXPECT_NE(parallel.weights_hash(), before);
      });
    }
  }
}

// Each rank's gradient is 40000; their sum is more than fp16 holds, and less than bf16 does.
TEST(DataParallel, ASumThatF16CannotHoldIsRefusedWithTheWayOut) {
  for (const std::string compression : {"f16", "bf16"}) {
    testing::run_ranks(2, [&](testing::RankContext& rank) {
      Net net;
      torch::optim::SGD sgd(net.parameters(), torch::optim::SGDOptions(1e-6));
      DataParallel parallel(parallel::StrategyContext{.world = rank.world.get()}, net, sgd,
                            {.compression = compression});
      (net.second->bias * 4e4).sum().backward();
      if (compression == "bf16") {
        EXPECT_TRUE(parallel.step());
        return;
      }
      try {
        parallel.step();
        ADD_FAILURE() << "the step was applied";
      } catch (const StepRefused& error) {
        EXPECT_NE(std::string(error.what()).find("If comm.compression is f16"), std::string::npos)
            << error.what();
      }
    });
  }
}

// The gradients of the last layer have come, the others have not.
TEST(DataParallel, ABackwardPassThatThrowsIsRefusedOnAllRanks) {
  testing::run_ranks(2, [&](testing::RankContext& rank) {
    Net net;
    torch::optim::SGD sgd(net.parameters(), torch::optim::SGDOptions(0.1));
    DataParallel parallel(parallel::StrategyContext{.world = rank.world.get()}, net, sgd);
    const std::string before = parallel.weights_hash();
    at::Tensor hidden = net.first(at::ones({2, 6}));
    const at::Tensor loss = net.second(hidden).sum();
    if (rank.rank == 1)
      hidden.register_hook([](const at::Tensor&) { throw std::runtime_error("no gradient"); });
    if (rank.rank == 1) {
      EXPECT_ANY_THROW(parallel.backward(loss, 2));
    } else {
      parallel.backward(loss, 2);
    }
    try {
      parallel.step();
      ADD_FAILURE() << "the step was applied";
    } catch (const StepRefused& error) {
      EXPECT_EQ(error.peer(), 1);
      EXPECT_NE(std::string(error.what()).find("no gradient"), std::string::npos) << error.what();
    }
    EXPECT_EQ(parallel.weights_hash(), before);
    parallel.backward(net.second(net.first(at::ones({2, 6}))).mean());
    EXPECT_TRUE(parallel.step());
    EXPECT_FALSE(parallel.take_results().back().count) << "that of the pass before";
  });
}

// An optimizer that throws on rank 1.
class Failing final : public torch::optim::SGD {
 public:
  Failing(std::vector<at::Tensor> parameters, int rank)
      : SGD(std::move(parameters), torch::optim::SGDOptions(0.1)), rank_(rank) {}
  at::Tensor step(LossClosure closure = nullptr) override {
    if (rank_ == 1) throw std::runtime_error("no update");
    return SGD::step(std::move(closure));
  }

 private:
  const int rank_;
};

// Rank 0 waits for rank 1's weights, or in the next step. Rank 1's process need not end.
TEST(DataParallel, AnOptimizerThatThrowsOnOneRankEndsAll) {
  for (const char* sync : {"plain", "zero1"}) {
    SCOPED_TRACE(sync);
    testing::run_ranks(2, [&](testing::RankContext& rank) {
      Net net;
      Failing sgd(net.parameters(), rank.rank);
      DataParallel parallel(parallel::StrategyContext{.world = rank.world.get()}, net, sgd,
                            {.sync = sync});
      std::string said;
      try {
        for (int step = 0; step < 2; ++step) {
          mean_loss(net, rank.rank, 1).backward();
          parallel.step();
        }
      } catch (const std::exception& error) {
        said = error.what();
      }
      EXPECT_NE(said.find(rank.rank == 1 ? "no update" : "rank 1 gave up"), std::string::npos)
          << said;
    });
  }
}

TEST(DataParallel, RefusesComplexParameters) {
  testing::run_ranks(1, [](testing::RankContext& rank) {
    torch::nn::Module module;
    module.register_parameter("phase", at::ones({2}, at::kComplexFloat));
    torch::optim::SGD sgd(module.parameters(), torch::optim::SGDOptions(0.1));
    try {
      DataParallel parallel(parallel::StrategyContext{.world = rank.world.get()}, module, sgd);
      ADD_FAILURE() << "it was accepted";
    } catch (const ConfigError& error) {
      EXPECT_NE(std::string(error.what()).find("phase is ComplexFloat"), std::string::npos)
          << error.what();
    }
  });
}

TEST(DataParallel, RefusesWhatItCannotTrain) {
  testing::run_ranks(1, [&](testing::RankContext& rank) {
    const parallel::StrategyContext env{.world = rank.world.get()};
    Net net, other;
    torch::optim::SGD sgd(net.parameters(), torch::optim::SGDOptions(0.1));
    torch::optim::SGD foreign(other.parameters(), torch::optim::SGDOptions(0.1));
    torch::optim::LBFGS lbfgs(net.parameters());
    for (const char* sync : {"zero3", "hybrid", "local_sgd", "gossip"}) {
      try {
        DataParallel parallel(env, net, sgd, {.sync = sync});
        ADD_FAILURE() << sync;
      } catch (const ConfigError& error) {
        EXPECT_NE(std::string(error.what()).find("list of blocks"), std::string::npos);
      }
    }
    EXPECT_THROW(DataParallel(env, net, sgd, {.sync = "server"}), ConfigError);  // there is none
    for (const at::ScalarType type : {at::kBFloat16, at::kHalf}) {
      Net half;
      half.to(type);
      torch::optim::SGD halves(half.parameters(), torch::optim::SGDOptions(0.1));
      try {
        DataParallel parallel(env, half, halves, {.sync = "server"});
        ADD_FAILURE() << type;
      } catch (const ConfigError& error) {
        EXPECT_NE(std::string(error.what()).find("servers keep weights in fp32"), std::string::npos)
            << error.what();
      }
    }
    EXPECT_THROW(DataParallel(env, net, sgd, {.staleness = 1}), ConfigError);
    EXPECT_THROW(DataParallel(env, net, sgd, {.replicas = 2}), ConfigError);
    EXPECT_THROW(DataParallel(env, net, sgd, {.clip = -1}), ConfigError);
    EXPECT_THROW(DataParallel(env, net, sgd, {.bucket_bytes = 0}), ConfigError);
    EXPECT_THROW(DataParallel(env, net, lbfgs, {.sync = "zero1"}), ConfigError);
    EXPECT_THROW(DataParallel(env, net, foreign), ConfigError);
    EXPECT_THROW(DataParallel(env, net, lbfgs), ConfigError);
  });
}

}  // namespace
}  // namespace trireme::data_parallel_test
