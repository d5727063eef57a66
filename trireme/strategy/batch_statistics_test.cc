// Batch norm in a list of blocks: the running statistics are folded by ascending micro-batch after
// the vote, whatever the layout.
#include "trireme/sync/batch_statistics.h"
#include "trireme/optim/optimizer.h"

#include <ATen/Functions.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include <map>
#include <string>

#include "trireme/base/error.h"
#include "trireme/models/module_block.h"
#include "trireme/strategy/strategy.h"
#include "trireme/sync/strategy_context.h"
#include "trireme/tensor/random.h"
#include "trireme/testing/run_ranks.h"

namespace trireme::batch_statistics_test {
namespace {

constexpr std::int64_t kIn = 6, kWidth = 10, kRows = 3;

// One batch norm is a block, another is inside a block.
models::Blocks model_with_norms() {
  models::Blocks model;
  model.add_block({.name = "in",
                   .make = [] { return models::as_block(torch::nn::Linear(kIn, kWidth)); },
                   .reads = {"features"}});
  model.add("norm", [] { return torch::nn::BatchNorm1d(kWidth); });
  model.add("middle", [] {
    return torch::nn::Sequential(
        torch::nn::GELU(), torch::nn::Linear(kWidth, kWidth),
        torch::nn::BatchNorm1d(torch::nn::BatchNorm1dOptions(kWidth).momentum(0.3)));
  });
  model.add("out", [] { return torch::nn::Linear(kWidth, 2); });
  return model;
}

at::Tensor features(std::int64_t step, std::uint32_t index) {
  at::Tensor values = at::empty({kRows, kIn}, at::kFloat);
  tensor::fill_normal(values, 3, std::to_string(step) + "/" + std::to_string(index), 0.5, 2);
  return values;
}

Batch batch_of(std::int64_t step, std::uint32_t total, int rank,
               const kernel::Assignment& assignment) {
  Batch batch{.total = total, .global_count = total * kRows, .step = step};
  for (const std::uint32_t i : leaves_of(assignment, total, rank))
    batch.micro.push_back(
        {.index = i, .count = kRows, .fields = {{"features", features(step, i)}}});
  return batch;
}

at::Tensor squares(const models::Value& output, const MicroBatch&) {
  return (output.at(0) - 0.5).pow(2).sum();
}

struct Sync {
  std::string name = "plain";
  int shard = 0;
};

// A rank's Strategy and its share of the micro-batches.
struct Trained {
  Trained(testing::RankContext& rank, const Sync& sync, const models::Blocks& model)
      : rank(rank.rank),
        strategy(context_of(rank), model,
                 {.sync = sync.name, .shard = sync.shard, .clip = 1.0, .bucket_bytes = 512},
                 optim::make_optimizer(AdamW{.learning_rate = 1e-2})) {}
  parallel::StrategyContext context_of(testing::RankContext& context) {
    parallel::StrategyContext env{.world = context.world.get()};
    env.assign = [this](const kernel::Assignment& dealt) { assignment = dealt; };
    return env;
  }
  void step(std::int64_t number, const Loss& loss = squares) {
    const std::uint32_t total = number % 3 == 2 ? 2 : 7;  // with 2, some ranks have no share
    strategy.step(batch_of(number, total, rank, assignment), loss);
  }
  std::map<std::string, at::Tensor> buffers() {
    std::map<std::string, at::Tensor> found;
    for (const NamedShard& shard : strategy.state())
      if (shard.name.find("running_") != std::string::npos ||
          shard.name.find("num_batches") != std::string::npos)
        found[shard.name] = shard.local.clone();
    return found;
  }
  int rank;
  kernel::Assignment assignment;
  Strategy strategy;
};

// Hash of weights and buffers, and the validation loss.
std::pair<std::string, double> train_on(int ranks, const Sync& sync) {
  std::vector<std::pair<std::string, double>> results(static_cast<std::size_t>(ranks));
  testing::run_ranks(ranks, [&](testing::RankContext& rank) {
    Trained trained(rank, sync, model_with_norms());
    for (int step = 0; step < 5; ++step) {
      trained.step(step);
      // An evaluation during training must not change the statistics.
      if (step == 1)
        trained.strategy.evaluate({batch_of(50, 8, rank.rank, trained.assignment)}, squares);
    }
    results[static_cast<std::size_t>(rank.rank)] = {
        trained.strategy.weights_hash(),
        trained.strategy.evaluate({batch_of(100, 8, rank.rank, trained.assignment)}, squares)};
  });
  for (const auto& result : results) EXPECT_EQ(result, results[0]);
  return results[0];
}

TEST(BatchStatistics, AreTheSameBitsUnderEverySyncOnAnyNumberOfRanks) {
  const auto one = train_on(1, {});
  for (int ranks : {2, 3, 5, 8}) EXPECT_EQ(train_on(ranks, {}), one) << ranks << " ranks";
  for (const char* sync : {"zero1", "zero2", "zero3"})
    for (int ranks : {2, 3, 4})
      EXPECT_EQ(train_on(ranks, {sync}), one) << sync << " on " << ranks << " ranks";
  for (const auto& [ranks, shard] : {std::pair{4, 2}, {6, 3}})
    EXPECT_EQ(train_on(ranks, {"hybrid", shard}), one) << "hybrid, " << shard << " of " << ranks;
}

// Compares with torch::nn's batch norm over the micro-batches in order; the weights do not change.
TEST(BatchStatistics, AreThoseOfLibTorchOverTheMicroBatchesInOrder) {
  testing::run_ranks(3, [&](testing::RankContext& rank) {
    models::Blocks model;
    model.add_block({.name = "norm",
                     .make =
                         [] {
                           return models::as_block(torch::nn::BatchNorm1d(
                               torch::nn::BatchNorm1dOptions(kIn).momentum(0.2)));
                         },
                     .reads = {"features"}});
    // Without a momentum: the average over all micro-batches.
    model.add("average", [] {
      return torch::nn::BatchNorm1d(torch::nn::BatchNorm1dOptions(kIn).momentum(std::nullopt));
    });
    Trained trained(rank, {}, model);
    trained.strategy.set_learning_rate(0);
    torch::nn::BatchNorm1d norm(torch::nn::BatchNorm1dOptions(kIn).momentum(0.2));
    torch::nn::BatchNorm1d average(torch::nn::BatchNorm1dOptions(kIn).momentum(std::nullopt));
    for (std::int64_t step = 0; step < 3; ++step) {
      trained.step(step);
      for (std::uint32_t i = 0; i < (step == 2 ? 2u : 7u); ++i)
        average->forward(norm->forward(features(step, i)));
    }
    const auto buffers = trained.buffers();
    const auto expect_near = [&](const std::string& name, const at::Tensor& theirs) {
      EXPECT_TRUE(at::allclose(buffers.at(name), theirs, 1e-5, 1e-6)) << name;
    };
    expect_near("norm.running_mean", norm->running_mean);
    expect_near("norm.running_var", norm->running_var);
    expect_near("average.running_mean", average->running_mean);
    expect_near("average.running_var", average->running_var);
    EXPECT_EQ(buffers.at("norm.num_batches_tracked").item<std::int64_t>(), 16);
  });
}

TEST(BatchStatistics, ARefusedStepLeavesThemAlone) {
  for (const Sync& sync : {Sync{}, {"zero3"}}) {
    testing::run_ranks(3, [&](testing::RankContext& rank) {
      Trained straight(rank, sync, model_with_norms());
      for (int step = 0; step < 3; ++step) straight.step(step);

      Trained refused(rank, sync, model_with_norms());
      refused.step(0);
      const std::string before = refused.strategy.weights_hash();
      const auto fails = [&](const models::Value& output, const MicroBatch& micro) {
        if (micro.index == 3) throw std::out_of_range("no such image");
        return squares(output, micro);
      };
      EXPECT_THROW(refused.step(4, fails), StepRefused);
      const auto overflows = [&](const models::Value& output, const MicroBatch& micro) {
        return squares(output, micro) * 1e38;
      };
      EXPECT_THROW(refused.step(4, overflows), StepRefused);
      EXPECT_EQ(refused.strategy.weights_hash(), before) << sync.name;
      refused.step(1);
      refused.step(2);
      EXPECT_EQ(refused.strategy.weights_hash(), straight.strategy.weights_hash()) << sync.name;
    });
  }
}

TEST(BatchStatistics, AreResumedFromTheState) {
  testing::run_ranks(2, [&](testing::RankContext& rank) {
    Trained straight(rank, {"zero1"}, model_with_norms());
    for (int step = 0; step < 2; ++step) straight.step(step);
    std::map<std::string, at::Tensor> saved;
    for (const NamedShard& shard : straight.strategy.state())
      saved[shard.name] = shard.local.clone();
    const std::string metadata = straight.strategy.metadata();
    for (int step = 2; step < 4; ++step) straight.step(step);

    Trained resumed(rank, {"zero1"}, model_with_norms());
    resumed.step(7);  // restoring must undo this
    for (const NamedShard& shard : resumed.strategy.state())
      shard.local.copy_(saved.at(shard.name));
    resumed.strategy.restored(metadata);
    for (int step = 2; step < 4; ++step) resumed.step(step);
    EXPECT_EQ(resumed.strategy.weights_hash(), straight.strategy.weights_hash());
  });
}

// Each copy folds its own micro-batches. Averaging the copies also averages the running values, and
// the next step starts from the average.
TEST(BatchStatistics, AreAveragedWithCopiesThatTrainAlone) {
  testing::run_ranks(2, [&](testing::RankContext& rank) {
    models::Blocks model;
    model.add_block({.name = "norm",
                     .make = [] { return models::as_block(torch::nn::BatchNorm1d(kIn)); },
                     .reads = {"features"}});
    Strategy strategy(parallel::StrategyContext{.world = rank.world.get()}, model,
                      {.sync = "local_sgd", .local = {.steps = 1}},
                      optim::make_optimizer(Sgd{.learning_rate = 0}));
    at::Tensor mean = at::zeros({kIn}), variance = at::ones({kIn});
    for (std::int64_t step = 0; step < 3; ++step) {
      strategy.step(batch_of(step, 4, rank.rank, kernel::contiguous(2)), squares);
      at::Tensor means = at::zeros({kIn}), variances = at::zeros({kIn});
      for (std::uint32_t copy = 0; copy < 2; ++copy) {
        torch::nn::BatchNorm1d norm(kIn);
        norm->running_mean.copy_(mean);
        norm->running_var.copy_(variance);
        for (std::uint32_t i = 2 * copy; i < 2 * copy + 2; ++i) norm->forward(features(step, i));
        means += norm->running_mean / 2;
        variances += norm->running_var / 2;
      }
      mean = means;
      variance = variances;
    }
    std::map<std::string, at::Tensor> buffers;
    for (const NamedShard& shard : strategy.state()) buffers[shard.name] = shard.local;
    EXPECT_TRUE(at::allclose(buffers.at("norm.running_mean"), mean, 1e-5, 1e-6));
    EXPECT_TRUE(at::allclose(buffers.at("norm.running_var"), variance, 1e-5, 1e-6));
  });
}

// Ranks that train copies see other numbers of micro-batches where shares are uneven. In a
// checkpoint all have the largest number.
TEST(BatchStatistics, RanksThatTrainCopiesAgreeInTheirCounts) {
  for (const char* sync : {"local_sgd", "diloco", "easgd", "gossip"}) {
    testing::run_ranks(3, [&](testing::RankContext& rank) {
      Trained trained(rank, {sync}, model_with_norms());
      for (int step = 0; step < 2; ++step) trained.step(step);  // of 7 micro-batches: 2, 2 and 3
      const auto buffers = trained.buffers();
      EXPECT_EQ(buffers.at("norm.num_batches_tracked").item<std::int64_t>(), 6) << sync;
    });
  }
}

// In evaluation mode the running values are used for normalization and do not change.
TEST(BatchStatistics, EvaluationUsesTheRunningOnes) {
  testing::run_ranks(1, [&](testing::RankContext& rank) {
    models::Blocks model;
    model.add_block({.name = "norm",
                     .make = [] { return models::as_block(torch::nn::BatchNorm1d(kIn)); },
                     .reads = {"features"}});
    Trained trained(rank, {}, model);
    trained.strategy.set_learning_rate(0);
    for (int step = 0; step < 3; ++step) trained.step(step);
    const auto buffers = trained.buffers();
    const MicroBatch micro{.count = kRows, .fields = {{"features", features(9, 0)}}};
    const at::Tensor expected = (features(9, 0) - buffers.at("norm.running_mean")) /
                                (buffers.at("norm.running_var") + 1e-5).sqrt();
    EXPECT_TRUE(at::allclose(trained.strategy.infer(micro).at(0), expected, 1e-5, 1e-6));
    for (const auto& [name, value] : trained.buffers())
      EXPECT_TRUE(at::equal(value, buffers.at(name))) << name;
  });
}

}  // namespace
}  // namespace trireme::batch_statistics_test
