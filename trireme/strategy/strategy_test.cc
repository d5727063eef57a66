#include "trireme/strategy/strategy.h"

#include <ATen/Functions.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/linear.h>

#include <cmath>

#include "trireme/base/error.h"
#include "trireme/kernel/assignment.h"
#include "trireme/models/models.h"
#include "trireme/models/module_block.h"
#include "trireme/optim/optimizer.h"
#include "trireme/strategy/strategy_test.h"
#include "trireme/sync/strategy_context.h"
#include "trireme/tensor/random.h"
#include "trireme/testing/run_ranks.h"

namespace trireme::strategy_test {
namespace {

struct Outcome {
  std::string hash;
  std::vector<double> losses, norms;
  double validation = 0;
  friend bool operator==(const Outcome&, const Outcome&) = default;
};

Outcome train(testing::RankContext& rank, const std::string& precision, int steps,
              std::int64_t bucket_bytes = 2048, const Sync& sync = {}) {
  kernel::Assignment assignment;
  parallel::StrategyContext env{.world = rank.world.get()};
  env.assign = [&](const kernel::Assignment& dealt) { assignment = dealt; };
  Strategy strategy(env, tiny_gpt(precision),
                    {.sync = sync.name,
                     .shard = sync.shard,
                     .precision = precision,
                     .clip = 0.5,
                     .bucket_bytes = bucket_bytes,
                     .overlap = sync.overlap},
                    optim::make_optimizer(AdamW{.learning_rate = 1e-2}));
  Outcome outcome;
  for (int step = 0; step < steps; ++step) {
    const std::uint32_t total = step % 3 == 2 ? 5 : 9;  // a short batch now and then
    const StepResult result =
        strategy.step(batch_of(step, total, rank.rank, assignment), token_loss());
    EXPECT_EQ(result.count, total * 2 * kBlock);
    outcome.losses.push_back(result.loss);
    outcome.norms.push_back(result.gradient_norm.value_or(0));
  }
  outcome.validation = strategy.evaluate({batch_of(100, 8, rank.rank, assignment)}, token_loss());
  outcome.hash = strategy.weights_hash();
  return outcome;
}

Outcome train_on(int ranks, const std::string& precision, const std::string& algorithm = "auto",
                 std::int64_t bucket_bytes = 2048, const Sync& sync = {}) {
  std::vector<Outcome> outcomes(static_cast<std::size_t>(ranks));
  testing::run_ranks(ranks,
                     [&](testing::RankContext& rank) {
                       outcomes[static_cast<std::size_t>(rank.rank)] =
                           train(rank, precision, 6, bucket_bytes, sync);
                     },
                     {.algorithm = algorithm});
  for (const Outcome& outcome : outcomes) EXPECT_EQ(outcome, outcomes[0]);
  return outcomes[0];
}

TEST(Strategy, EndsWithTheSameBitsOnAnyNumberOfRanks) {
  for (const char* precision : {"fp32", "bf16", "fp16", "fp64"}) {
    const Outcome one = train_on(1, precision);
    EXPECT_LT(one.losses.back(), one.losses.front());
    EXPECT_TRUE(std::isfinite(one.validation));
    for (int ranks : {2, 3, 4, 5, 8})
      EXPECT_EQ(train_on(ranks, precision), one) << ranks << " ranks, " << precision;
  }
}

TEST(Strategy, AddsAsLeavesComeWhereItNeedNotBeReproducible) {
  const Outcome one = train_on(1, "fp32");
  for (int ranks : {1, 2, 3, 8}) {
    std::int64_t sums[2] = {};
    for (const bool reproducible : {true, false}) {
      std::vector<Outcome> outcomes(static_cast<std::size_t>(ranks));
      testing::run_ranks(ranks,
                         [&](testing::RankContext& rank) {
                           outcomes[static_cast<std::size_t>(rank.rank)] = train(rank, "fp32", 6);
                           Strategy strategy({.world = rank.world.get()}, tiny_gpt(), {},
                                             optim::make_optimizer(AdamW{.learning_rate = 1e-2}));
                           strategy.step(batch_of(0, 16, rank.rank, rank.size), token_loss());
                           if (rank.rank == 0)
                             sums[reproducible ? 1 : 0] = strategy.gradient_bytes();
                         },
                         {.reproducible = reproducible});
      for (const Outcome& outcome : outcomes) EXPECT_EQ(outcome, outcomes[0]);
      for (std::size_t i = 0; i < one.losses.size(); ++i)
        EXPECT_NEAR(outcomes[0].losses[i], one.losses[i], 1e-4) << ranks << " ranks, step " << i;
    }
    EXPECT_LE(sums[0], sums[1]);
    if (ranks <= 2) {
      EXPECT_LT(sums[0], sums[1]) << "one sum, and not a stack of them";
    }
  }
}

// With clipping, accumulation, a tied embedding, and batches that leave some ranks without a share.
TEST(Strategy, EverySyncEndsWithTheSameBits) {
  for (const char* precision : {"fp32", "bf16"}) {
    const Outcome one = train_on(1, precision);
    for (const Sync& sync : {Sync{"zero1"}, {"zero2"}, {"zero3"}}) {
      for (int ranks : {2, 3, 8})
        EXPECT_EQ(train_on(ranks, precision, "auto", 2048, sync), one)
            << sync.name << " on " << ranks << " ranks, " << precision;
    }
    for (const auto& [ranks, shard] : {std::pair{4, 2}, {6, 3}, {3, 1}})
      EXPECT_EQ(train_on(ranks, precision, "auto", 2048, {"hybrid", shard}), one)
          << "hybrid, " << shard << " of " << ranks << " ranks, " << precision;
  }
}

comm::SimulationOptions slow_network() {
  comm::SimulationOptions slow;
  slow.network = {.alpha = std::chrono::microseconds(100),
                  .bytes_per_second = 1e8,
                  .jitter = {},
                  .shared_memory = false,
                  .one_link = true};
  return slow;
}

TEST(Strategy, TellsTheTimeOfCommunicationUnderEverySync) {
  const comm::SimulationOptions slow = slow_network();
  for (const Sync& sync : {Sync{"plain"}, {"zero1"}, {"zero2"}, {"zero3"}}) {
    comm::simulate(2, slow, [&](testing::RankContext& rank) {
      kernel::Assignment assignment;
      parallel::StrategyContext env{.world = rank.world.get()};
      env.assign = [&](const kernel::Assignment& dealt) { assignment = dealt; };
      Strategy strategy(env, tiny_gpt(), {.sync = sync.name, .bucket_bytes = 2048},
                        optim::make_optimizer(AdamW{.learning_rate = 1e-2}));
      strategy.step(batch_of(0, 4, rank.rank, assignment), token_loss());
      const Duration world = rank.world->time_waited();
      const StepResult result = strategy.step(batch_of(1, 4, rank.rank, assignment), token_loss());
      const Duration in_world = rank.world->time_waited() - world;
      EXPECT_GT(result.communication, Duration::zero()) << sync.name;
      EXPECT_LE(result.communication, result.total) << sync.name;
      if (sync.name != "plain") {
        EXPECT_GT(result.communication, in_world) << sync.name;
      }
    });
  }
}

// Nothing else takes time on a simulated network.
TEST(Strategy, CountsTheCommunicationOfEachOfARanksStages) {
  comm::simulate(4, slow_network(), [&](testing::RankContext& rank) {
    kernel::Assignment assignment;
    parallel::StrategyContext env{.world = rank.world.get()};
    env.assign = [&](const kernel::Assignment& dealt) { assignment = dealt; };
    const models::GptConfig four_blocks{
        .layers = 2, .heads = 2, .width = 16, .block = kBlock, .vocab = kVocab};
    Strategy strategy(env, models::make_gpt(four_blocks),
                      {.sync = "zero2", .pipeline = 2, .schedule = "zb-v", .bucket_bytes = 2048},
                      optim::make_optimizer(AdamW{.learning_rate = 1e-2}));
    const StepResult result = strategy.step(batch_of(0, 4, rank.rank, assignment), token_loss());
    EXPECT_EQ(result.communication, result.total) << "rank " << rank.rank;
  });
}

// Ranks that cannot map the memory of one that fails are told by a message.
TEST(Strategy, ARankThatGivesUpIsNamedWithItsExitCode) {
  for (const std::size_t place : {0, 1, 2}) {
    comm::simulate(2, slow_network(), [&](testing::RankContext& rank) {
      const models::Blocks layers = models::make_mlp({.widths = {4, 6, 2}, .input = "tokens"});
      models::Blocks model;
      for (std::size_t i = 0; i <= layers.specs().size(); ++i) {
        if (i == place)
          model.add("camera", {i == 0 ? "tokens" : layers.specs()[i - 1].writes}, [&rank] {
            return [&rank](const at::Tensor& x) {
              if (rank.rank == 1) throw std::runtime_error("the lens cap is on");
              return x * 1;
            };
          });
        if (i == layers.specs().size()) break;
        models::BlockSpec spec = layers.specs()[i];
        if (i == place) spec.reads = {"camera"};
        model.add_block(spec);
      }
      Strategy strategy(parallel::StrategyContext{.world = rank.world.get()}, model, {.tensor = 2},
                        optim::make_optimizer(Sgd{}));
      const MicroBatch micro{.count = 1, .fields = {{"tokens", at::ones({2, 4})}}};
      try {
        strategy.step(
            {.micro = {micro}, .total = 1, .global_count = 1},
            [](const models::Value& output, const MicroBatch&) { return output.at(0).sum(); });
        ADD_FAILURE() << "rank " << rank.rank << " goes on";
      } catch (const Error& error) {
        EXPECT_EQ(rank.rank, 0);
        EXPECT_EQ(error.peer(), 1);
        EXPECT_EQ(error.code(), ExitCode::UserCode);
        EXPECT_THAT(error.what(), ::testing::HasSubstr("rank 1 gave up"));
      } catch (const std::runtime_error& error) {
        EXPECT_STREQ(error.what(), "the lens cap is on");
      }
    });
  }
}

// Our dropout and LibTorch's, batch norm, and a tied weight.
models::Blocks drawing_blocks() {
  models::Blocks blocks = models::make_gpt(
      {.layers = 3, .heads = 2, .width = 16, .block = kBlock, .vocab = kVocab, .dropout = 0.2});
  models::Blocks all;
  for (const models::BlockSpec& spec : blocks.specs()) {
    if (spec.name == "head") {
      all.add("foreign", [] {
        auto linear = std::make_shared<torch::nn::LinearImpl>(16, 16);
        return models::make_block(linear, [linear](std::vector<at::Tensor> inputs) {
          return std::vector<at::Tensor>{at::dropout(linear->forward(inputs[0]), 0.3, true)};
        });
      });
      all.add("norm", [] {
        auto norm = std::make_shared<torch::nn::BatchNorm1dImpl>(kBlock);
        return models::make_block(norm, [norm](std::vector<at::Tensor> inputs) {
          return std::vector<at::Tensor>{norm->forward(inputs[0])};
        });
      });
    }
    all.add_block(spec);
  }
  return all.tie("head.weight", "embed.weight");
}

TEST(Strategy, RecomputationChangesNoBit) {
  const auto train_with = [](int ranks, const std::string& sync, const std::string& recompute) {
    std::vector<std::string> hashes(static_cast<std::size_t>(ranks));
    testing::run_ranks(ranks, [&](testing::RankContext& rank) {
      kernel::Assignment assignment;
      parallel::StrategyContext env{.world = rank.world.get()};
      env.assign = [&](const kernel::Assignment& dealt) { assignment = dealt; };
      Strategy strategy(env, drawing_blocks(),
                        {.sync = sync, .clip = 0.5, .bucket_bytes = 2048, .recompute = recompute},
                        optim::make_optimizer(AdamW{.learning_rate = 1e-2}));
      for (int step = 0; step < 3; ++step)
        strategy.step(batch_of(step, 5, rank.rank, assignment), token_loss());
      hashes[static_cast<std::size_t>(rank.rank)] = strategy.weights_hash();
    });
    for (const std::string& hash : hashes) EXPECT_EQ(hash, hashes[0]);
    return hashes[0];
  };
  const std::string one = train_with(1, "plain", "none");
  for (const char* recompute : {"selective", "full", "every-2", "every-3"}) {
    EXPECT_EQ(train_with(1, "plain", recompute), one) << recompute;
    EXPECT_EQ(train_with(2, "plain", recompute), one) << recompute;
    EXPECT_EQ(train_with(3, "zero3", recompute), one) << recompute;
  }
  EXPECT_THROW(train_with(1, "plain", "all"), ConfigError);
}

// Parameters of several chunks with uneven ends, so that ranks own parts of them. One layer is
// skipped for odd micro-batches, so only some ranks have its gradients.
TEST(Strategy, EverySyncCutsLargeParametersAndMeetsUnusedOnes) {
  struct Skips : torch::nn::Module {
    Skips() { inner = register_module("inner", torch::nn::Linear(130, 130)); }
    at::Tensor forward(const at::Tensor& x) {
      return at::fmod(x.sum(), 2.0).abs().item<float>() > 1 ? at::tanh(inner(x)) : x * 0.5;
    }
    torch::nn::Linear inner{nullptr};
  };
  models::Blocks model;
  model.add_block({.name = "in",
                   .make = [] { return models::as_block(torch::nn::Linear(70, 130)); },
                   .reads = {"features"}});
  model.add("skips", [] { return Skips(); });
  model.add("gelu", [] { return [](const at::Tensor& x) { return at::gelu(x); }; });
  model.add("again", [] { return torch::nn::Linear(130, 130); });
  model.add("out", [] { return torch::nn::Linear(130, 3); });
  const auto train_model = [&](int ranks, const Sync& sync) {
    std::vector<std::string> hashes(static_cast<std::size_t>(ranks));
    testing::run_ranks(ranks, [&](testing::RankContext& rank) {
      kernel::Assignment assignment;
      parallel::StrategyContext env{.world = rank.world.get()};
      env.assign = [&](const kernel::Assignment& dealt) { assignment = dealt; };
      Strategy strategy(
          env, model, {.sync = sync.name, .shard = sync.shard, .clip = 0.1, .bucket_bytes = 30000},
          optim::make_optimizer(AdamW{.learning_rate = 1e-2}));
      for (std::int64_t step = 0; step < 4; ++step) {
        const std::uint32_t total = step == 2 ? 3 : 7;
        Batch batch{.total = total, .global_count = total, .step = step};
        for (const std::uint32_t i : leaves_of(assignment, total, rank.rank)) {
          at::Tensor noise = at::empty({2, 70}, at::kFloat);
          tensor::fill_normal(noise, 3, std::to_string(step) + "/" + std::to_string(i), 0, 1);
          batch.micro.push_back({.index = i, .count = 1, .fields = {{"features", noise}}});
        }
        strategy.step(batch, [](const models::Value& output, const MicroBatch&) {
          return output.at(0).pow(2).mean();
        });
      }
      hashes[static_cast<std::size_t>(rank.rank)] = strategy.weights_hash();
    });
    for (const std::string& hash : hashes) EXPECT_EQ(hash, hashes[0]);
    return hashes[0];
  };
  const std::string one = train_model(1, {});
  for (const Sync& sync : sharded_syncs()) {
    for (int ranks : {2, 3, 4}) {
      if (sync.shard > 0 && ranks % sync.shard != 0) continue;
      EXPECT_EQ(train_model(ranks, sync), one) << sync.name << " on " << ranks << " ranks";
    }
  }
}

// A validation between two steps of the same length: the second step must not use its plan.
TEST(Strategy, EverySyncGoesOnAfterAValidation) {
  const auto trained = [](int ranks, const Sync& sync, bool validates) {
    std::string hash;
    testing::run_ranks(ranks, [&](testing::RankContext& rank) {
      kernel::Assignment assignment;
      parallel::StrategyContext env{.world = rank.world.get()};
      env.assign = [&](const kernel::Assignment& dealt) { assignment = dealt; };
      Strategy strategy(env, tiny_gpt(), {.sync = sync.name, .shard = sync.shard},
                        optim::make_optimizer(AdamW{.learning_rate = 1e-2}));
      for (int step = 0; step < 4; ++step) {
        strategy.step(batch_of(step, 6, rank.rank, assignment), token_loss());
        if (validates) strategy.evaluate({batch_of(100, 4, rank.rank, assignment)}, token_loss());
      }
      const std::string own = strategy.weights_hash();
      if (rank.rank == 0) hash = own;
    });
    return hash;
  };
  const std::string wanted = trained(1, {}, false);
  for (const auto& [ranks, sync] : {std::pair<int, Sync>{3, {}},
                                    {2, {"zero1"}},
                                    {3, {"zero2"}},
                                    {3, {"zero3"}},
                                    {4, {"hybrid", 2}}})
    EXPECT_EQ(trained(ranks, sync, true), wanted) << sync.name;
}

// bf16 has separate master weights; under zero3 fp32's weights move to the file too.
TEST(Strategy, StateInAMappedFileChangesNoBit) {
  using Case = std::pair<Sync, const char*>;
  for (const auto& [sync, precision] : {Case{{}, "bf16"},
                                        {{"zero1"}, "bf16"},
                                        {{"zero1"}, "fp32"},
                                        {{"zero3"}, "bf16"},
                                        {{"zero3"}, "fp32"}}) {
    testing::run_ranks(2, [&, &sync = sync, &precision = precision](testing::RankContext& rank) {
      const auto train_in = [&](const std::string& folder) {
        kernel::Assignment assignment;
        parallel::StrategyContext env{.world = rank.world.get()};
        env.assign = [&](const kernel::Assignment& dealt) { assignment = dealt; };
        Strategy strategy(env, tiny_gpt(precision),
                          {.sync = sync.name, .precision = precision, .offload = folder},
                          optim::make_optimizer(AdamW{.learning_rate = 1e-2}));
        // At least the moments; in whole pages.
        const std::int64_t least = folder.empty() ? 0 : strategy.num_parameters() * 8 / 4;
        EXPECT_GE(strategy.offloaded_bytes(), least);
        EXPECT_EQ(strategy.offloaded_bytes() == 0, folder.empty());
        for (int step = 0; step < 3; ++step)
          strategy.step(batch_of(step, 5, rank.rank, assignment), token_loss());
        return strategy.weights_hash();
      };
      EXPECT_EQ(train_in(::testing::TempDir()), train_in("")) << sync.name << " " << precision;
      EXPECT_THROW(train_in("/no/such/folder"), ConfigError);
    });
  }
}

TEST(Strategy, TheBucketSizeDoesNotShow) {
  const Outcome one = train_on(1, "fp32");
  EXPECT_EQ(train_on(3, "fp32", "ring", 1 << 20), one);
  EXPECT_EQ(train_on(3, "fp32", "naive", 1), one);
  EXPECT_EQ(train_on(3, "fp32", "auto", 2048, {.overlap = false}), one);
}

// Compression changes bits equally on all ranks, and the losses stay close.
TEST(Strategy, CompressedGradientsKeepTheRanksEqual) {
  const auto train_with = [](const std::string& compression) {
    std::vector<Outcome> outcomes(3);
    testing::run_ranks(3, [&](testing::RankContext& rank) {
      Strategy strategy(parallel::StrategyContext{.world = rank.world.get()}, tiny_gpt(),
                        {.clip = 0.5, .bucket_bytes = 2048, .compression = compression},
                        optim::make_optimizer(AdamW{.learning_rate = 1e-2}));
      Outcome& outcome = outcomes[static_cast<std::size_t>(rank.rank)];
      for (int step = 0; step < 6; ++step) {
        const std::uint32_t total = step == 3 ? 2 : 9;  // once, rank 2 has no share
        const Batch batch = batch_of(step, total, rank.rank, rank.size);
        outcome.losses.push_back(strategy.step(batch, token_loss()).loss);
      }
      outcome.hash = strategy.weights_hash();
    });
    EXPECT_EQ(outcomes[1], outcomes[0]) << compression;
    EXPECT_EQ(outcomes[2], outcomes[0]) << compression;
    return outcomes[0];
  };
  const Outcome plain = train_with("none");
  for (const char* spec : {"bf16", "f16", "topk:0.3", "powersgd:2,0", "onebit"}) {
    const Outcome compressed = train_with(spec);
    EXPECT_NE(compressed.hash, plain.hash) << spec << " changed nothing";
    EXPECT_NEAR(compressed.losses.back(), plain.losses.back(), 0.25) << spec;
  }
}

// AdamW's weight decay would move a frozen matrix, too, and the mean of three equal weights differs
// from them in some bits. It is saved like a buffer, and lanes share it.
TEST(Strategy, FrozenParametersStayAsTheyAre) {
  for (const auto& [ranks, sync] : {std::pair{2, "plain"}, {2, "zero3"}, {3, "local_sgd"}}) {
    testing::run_ranks(ranks, [&, sync = sync](testing::RankContext& rank) {
      const auto frozen = [] {
        torch::nn::Linear body(4, 32);
        body->weight.requires_grad_(false);
        return body;
      };
      models::Blocks net;
      net.add("body", {"x"}, frozen);
      net.add("head", [] { return torch::nn::Linear(32, 1); });
      Strategy strategy({.world = rank.world.get()}, net,
                        {.sync = sync, .lanes = 2, .local = {.steps = 1}},
                        optim::make_optimizer(AdamW{.learning_rate = 0.1, .weight_decay = 0.5}));
      if (std::string(sync) == "plain") {
        EXPECT_EQ(strategy.notes().lanes, "simulated ranks are threads already");
      }
      for (const NamedShard& shard : strategy.state())
        EXPECT_EQ(shard.frozen, shard.name == "body.weight") << shard.name;
      const auto weight = [&](const std::string& name) {
        for (const NamedShard& shard : strategy.state())
          if (shard.name == name) return shard.local.clone();
        return at::Tensor();
      };
      const at::Tensor before = weight("body.weight");
      ASSERT_TRUE(before.defined()) << "it is in checkpoints";
      const Loss loss = [](const models::Value& output, const MicroBatch&) {
        return output.at(0).pow(2).sum();
      };
      MicroBatch micro{.index = static_cast<std::uint32_t>(rank.rank),
                       .first_sample = rank.rank,
                       .count = 1,
                       .fields = {{"x", at::ones({1, 4})}}};
      strategy.step({.micro = {micro},
                     .total = static_cast<std::uint32_t>(rank.size),
                     .global_count = rank.size,
                     .step = 0},
                    loss);
      EXPECT_TRUE(at::equal(weight("body.weight"), before)) << sync;
      EXPECT_FALSE(weight("optimizer/body.weight.exp_avg").defined());
    });
  }
}

}  // namespace
}  // namespace trireme::strategy_test
