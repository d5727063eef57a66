#include "trireme/parallel/strategy.h"

#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <mutex>

#include "trireme/base/error.h"
#include "trireme/kernel/tree_sum.h"
#include "trireme/models/gpt.h"
#include "trireme/models/mlp.h"
#include "trireme/parallel/seat.h"
#include "trireme/tensor/random.h"
#include "trireme/testing/run_ranks.h"

namespace trireme {
namespace {

constexpr std::int64_t kBlock = 8, kVocab = 20;

models::Blocks tiny_gpt(const std::string& precision = "fp32") {
  return models::make_gpt({.layers = 1,
                           .heads = 2,
                           .width = 16,
                           .block = kBlock,
                           .vocab = kVocab,
                           .precision = precision});
}

// Micro-batch `index` of step `step`: a function of nothing else.
MicroBatch micro_batch(std::int64_t step, std::uint32_t index) {
  at::Tensor noise = at::empty({2, kBlock + 1}, at::kFloat);
  tensor::fill_uniform(noise, 7, std::to_string(step) + "/" + std::to_string(index), 0, 4);
  const at::Tensor tokens = noise.to(at::kLong).clamp_max(3);
  return {.index = index,
          .first_sample = 2 * index,
          .count = 2 * kBlock,
          .fields = {{"tokens", tokens.narrow(1, 0, kBlock).contiguous()},
                     {"targets", tokens.narrow(1, 1, kBlock).contiguous()}}};
}

Batch batch_of(std::int64_t step, std::uint32_t total, int rank, int size) {
  Batch batch{.total = total, .global_count = total * 2 * kBlock, .step = step};
  const kernel::LeafRange share = kernel::contiguous_share(total, size, rank);
  for (std::uint32_t i = share.first; i < share.end(); ++i)
    batch.micro.push_back(micro_batch(step, i));
  return batch;
}

struct Outcome {
  std::string hash;
  std::vector<double> losses, norms;
  double validation = 0;
  friend bool operator==(const Outcome&, const Outcome&) = default;
};

Outcome train(testing::RankContext& rank, const std::string& precision, int steps,
              std::int64_t bucket_bytes = 2048) {
  Strategy strategy(parallel::Seat{.world = rank.world.get()}, tiny_gpt(precision),
                    {.precision = precision, .clip = 0.5, .bucket_bytes = bucket_bytes},
                    optim::make_optimizer(AdamW{.learning_rate = 1e-2}));
  Outcome outcome;
  for (int step = 0; step < steps; ++step) {
    const std::uint32_t total = step % 3 == 2 ? 5 : 9;  // a short batch now and then
    const StepResult result =
        strategy.step(batch_of(step, total, rank.rank, rank.size), token_loss());
    EXPECT_EQ(result.count, total * 2 * kBlock);
    outcome.losses.push_back(result.loss);
    outcome.norms.push_back(result.gradient_norm);
  }
  outcome.validation = strategy.evaluate({batch_of(100, 8, rank.rank, rank.size)}, token_loss());
  outcome.hash = strategy.weights_hash();
  return outcome;
}

Outcome train_on(int ranks, const std::string& precision, const std::string& algorithm = "auto",
                 std::int64_t bucket_bytes = 2048) {
  std::vector<Outcome> outcomes(static_cast<std::size_t>(ranks));
  testing::run_ranks(ranks,
                     [&](testing::RankContext& rank) {
                       outcomes[static_cast<std::size_t>(rank.rank)] =
                           train(rank, precision, 6, bucket_bytes);
                     },
                     {.algorithm = algorithm});
  for (const Outcome& outcome : outcomes) EXPECT_EQ(outcome, outcomes[0]);
  return outcomes[0];
}

TEST(Strategy, EndsWithTheSameBitsOnAnyNumberOfRanks) {
  for (const char* precision : {"fp32", "bf16", "fp64"}) {
    const Outcome one = train_on(1, precision);
    EXPECT_LT(one.losses.back(), one.losses.front());
    EXPECT_TRUE(std::isfinite(one.validation));
    for (int ranks : {2, 3, 4, 5, 8})
      EXPECT_EQ(train_on(ranks, precision), one) << ranks << " ranks, " << precision;
  }
}

TEST(Strategy, TheBucketSizeDoesNotShow) {
  const Outcome one = train_on(1, "fp32");
  EXPECT_EQ(train_on(3, "fp32", "ring", 1 << 20), one);
  EXPECT_EQ(train_on(3, "fp32", "naive", 1), one);
}

TEST(Strategy, ARankThatFailsIsNamedOnAllAndNothingIsApplied) {
  testing::run_ranks(3, [&](testing::RankContext& rank) {
    Strategy strategy(parallel::Seat{.world = rank.world.get()}, tiny_gpt(), {},
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
    Strategy strategy(parallel::Seat{.world = rank.world.get()}, tiny_gpt(), {},
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

// The output's bias gets 1e38 from each of four micro-batches: finite in each rank's own sum.
TEST(Strategy, AnOverflowThatOnlyTheSumHasIsRefusedOnAllRanks) {
  for (const double clip : {0.0, 1.0}) {
    testing::run_ranks(2, [&](testing::RankContext& rank) {
      Strategy strategy(parallel::Seat{.world = rank.world.get()},
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

TEST(Strategy, AStopSignalOfOneRankReachesAllInTheSameStep) {
  testing::run_ranks(3, [&](testing::RankContext& rank) {
    int step = 0;
    parallel::Seat seat{.world = rank.world.get()};
    seat.stop_signal = [&] { return rank.rank == 1 && step == 2 ? 143 : 0; };
    Strategy strategy(seat, tiny_gpt(), {}, optim::make_optimizer(AdamW{}));
    for (step = 0; step < 3; ++step) {
      const StepResult result =
          strategy.step(batch_of(step, 3, rank.rank, rank.size), token_loss());
      EXPECT_EQ(result.stop_signal, step == 2 ? 143 : 0);
    }
  });
}

TEST(Strategy, ALoopThatEndsEarlyIsNamedToTheOthers) {
  testing::run_ranks(3, [&](testing::RankContext& rank) {
    Strategy strategy(parallel::Seat{.world = rank.world.get()}, tiny_gpt(), {},
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
    Strategy strategy(parallel::Seat{.world = rank.world.get()}, tiny_gpt(), {},
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
      Strategy strategy(parallel::Seat{.world = rank.world.get()},
                        models::make_mlp({.widths = {3, hidden, 2}}), {},
                        optim::make_optimizer(Sgd{}));
      ADD_FAILURE() << "the models were taken as equal";
    } catch (const MismatchError& error) {
      EXPECT_EQ(error.label(), "layer.0.linear.weight");
    }
  });
}

class StrategyResumes : public ::testing::TestWithParam<OptimizerOptions> {};
INSTANTIATE_TEST_SUITE_P(Every, StrategyResumes,
                         ::testing::Values(AdamW{.learning_rate = 1e-2}, Sgd{.momentum = 0.9},
                                           Lamb{}, Adafactor{}, Lion{}));

TEST_P(StrategyResumes, FromItsStateWithEqualBits) {
  testing::run_ranks(2, [&](testing::RankContext& rank) {
    const auto make = [&] {
      return std::make_unique<Strategy>(parallel::Seat{.world = rank.world.get()}, tiny_gpt("bf16"),
                                        StrategyOptions{.precision = "bf16"},
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
    resumed->check_metadata(metadata);
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

TEST(Strategy, RefusesTheStateOfAnotherOptimizer) {
  testing::run_ranks(1, [&](testing::RankContext& rank) {
    const parallel::Seat seat{.world = rank.world.get()};
    const Strategy lion(seat, tiny_gpt(), {}, optim::make_optimizer(Lion{}));
    Strategy adamw(seat, tiny_gpt(), {}, optim::make_optimizer(AdamW{}));
    try {
      adamw.check_metadata(lion.metadata());
      FAIL() << "no error";
    } catch (const CheckpointError& error) {
      EXPECT_NE(std::string(error.what()).find("optimizer lion, and this run has adamw"),
                std::string::npos)
          << error.what();
    }
  });
}

// Compression changes bits, but not from rank to rank, and the losses stay close.
TEST(Strategy, CompressedGradientsKeepTheRanksEqual) {
  const auto train_with = [](const std::string& compression) {
    std::vector<Outcome> outcomes(3);
    testing::run_ranks(3, [&](testing::RankContext& rank) {
      Strategy strategy(parallel::Seat{.world = rank.world.get()}, tiny_gpt(),
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

TEST(Strategy, RefusesWhatThisReleaseDoesNotHave) {
  testing::run_ranks(1, [&](testing::RankContext& rank) {
    const parallel::Seat seat{.world = rank.world.get()};
    const auto make = [&](StrategyOptions options) {
      Strategy strategy(seat, tiny_gpt(), options, optim::make_optimizer(Sgd{}));
    };
    EXPECT_THROW(make({.sync = "zero3"}), ConfigError);
    EXPECT_THROW(make({.pipeline = 2}), ConfigError);
    EXPECT_THROW(make({.data = 2}), ConfigError);
    EXPECT_THROW(make({.precision = "fp16"}), ConfigError);
    EXPECT_THROW(make({.precision = "fp64"}), ConfigError);  // the model is fp32
  });
}

}  // namespace
}  // namespace trireme
