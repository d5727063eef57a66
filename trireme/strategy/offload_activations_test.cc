// Strategy with activations in a file: the same bits under every layout.
#include <ATen/Functions.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/base/error.h"
#include "trireme/kernel/assignment.h"
#include "trireme/models/models.h"
#include "trireme/optim/optimizer.h"
#include "trireme/strategy/strategy.h"
#include "trireme/sync/strategy_context.h"
#include "trireme/tensor/random.h"
#include "trireme/testing/run_ranks.h"

namespace trireme::offload_activations_test {
namespace {

constexpr std::int64_t kBlock = 32, kSide = 16;

// The activations of a micro-batch are larger than what stays in memory.
models::Blocks gpt() {
  return models::make_gpt(
      {.layers = 4, .heads = 2, .width = 64, .block = kBlock, .vocab = 40, .dropout = 0.1});
}
models::Blocks resnet() {
  return models::make_resnet({.layers = {1, 1, 1, 1}, .width = 8, .side = kSide});
}

MicroBatch micro_batch(std::int64_t step, std::uint32_t index) {
  at::Tensor noise = at::empty({4, kBlock + 1}, at::kFloat);
  at::Tensor images = at::empty({4, 3, kSide, kSide}, at::kFloat);
  const std::string name = std::to_string(step) + "/" + std::to_string(index);
  tensor::fill_uniform(noise, 7, name, 0, 40);
  tensor::fill_uniform(images, 7, name, -1, 1);
  const at::Tensor tokens = noise.to(at::kLong).clamp_max(39);
  return {.index = index,
          .first_sample = 4 * index,
          .count = 4,
          .fields = {{"tokens", tokens.narrow(1, 0, kBlock).contiguous()},
                     {"targets", tokens.narrow(1, 1, kBlock).contiguous()},
                     {"images", images},
                     {"classes", tokens.select(1, 0).remainder(10)}}};
}

Loss class_loss() {
  return [](const models::Value& output, const MicroBatch& micro) {
    return at::cross_entropy_loss(output.at(0), micro.field("classes"), {}, at::Reduction::Sum);
  };
}

struct Layout {
  int ranks = 1;
  StrategyOptions options = {};
};

std::string train(const models::Blocks& model, const Loss& loss, const Layout& layout) {
  std::vector<std::string> hashes(static_cast<std::size_t>(layout.ranks));
  testing::run_ranks(layout.ranks, [&](testing::RankContext& rank) {
    kernel::Assignment assignment;
    parallel::StrategyContext env{.world = rank.world.get()};
    env.assign = [&](const kernel::Assignment& dealt) { assignment = dealt; };
    StrategyOptions options = layout.options;
    options.clip = 0.5;
    options.bucket_bytes = 4096;
    Strategy strategy(env, model, options, optim::make_optimizer(AdamW{.learning_rate = 1e-2}));
    constexpr std::uint32_t kTotal = 5;
    for (int step = 0; step < 2; ++step) {
      Batch batch{.total = kTotal, .global_count = 4 * kTotal, .step = step};
      for (const std::uint32_t i : leaves_of(assignment, kTotal, rank.rank))
        batch.micro.push_back(micro_batch(step, i));
      strategy.step(batch, loss);
    }
    EXPECT_EQ(strategy.offloaded_bytes() > 100'000, !options.offload_activations.empty());
    hashes[static_cast<std::size_t>(rank.rank)] = strategy.weights_hash();
  });
  for (const std::string& hash : hashes) EXPECT_EQ(hash, hashes[0]);
  return hashes[0];
}

TEST(OffloadActivations, ChangesNoBit) {
  const std::string folder = ::testing::TempDir();
  const std::string one = train(gpt(), token_loss(), {});
  for (const Layout& layout : {Layout{1, {.offload_activations = folder}},
                               {1, {.recompute = "every-2", .offload_activations = folder}},
                               {1, {.recompute = "selective", .offload_activations = folder}},
                               {2, {.recompute = "full", .offload_activations = folder}},
                               {3, {.sync = "zero3", .offload_activations = folder}},
                               {2, {.sync = "zero1", .offload_activations = folder}}})
    EXPECT_EQ(train(gpt(), token_loss(), layout), one)
        << layout.ranks << " " << layout.options.sync << " " << layout.options.recompute;
}

TEST(OffloadActivations, ChangesNoBitInAPipeline) {
  const std::string folder = ::testing::TempDir();
  const std::string one = train(gpt(), token_loss(), {});
  for (const char* schedule : {"1f1b", "gpipe", "zb-h1", "interleaved-1f1b"}) {
    const Layout layout{2, {.pipeline = 2, .schedule = schedule, .offload_activations = folder}};
    EXPECT_EQ(train(gpt(), token_loss(), layout), one) << schedule;
  }
}

TEST(OffloadActivations, ChangesNoBitWhereRanksShareALayer) {
  const std::string folder = ::testing::TempDir();
  for (const bool sequence : {false, true}) {
    Layout layout{2, {.tensor = 2, .sequence = sequence}};
    const std::string kept = train(gpt(), token_loss(), layout);
    layout.options.offload_activations = folder;
    EXPECT_EQ(train(gpt(), token_loss(), layout), kept) << sequence;
    layout.options.recompute = "every-2";
    EXPECT_EQ(train(gpt(), token_loss(), layout), kept) << sequence;
    layout.ranks = 4;
    layout.options.pipeline = 2;
    layout.options.schedule = "zb-h1";
    EXPECT_EQ(train(gpt(), token_loss(), layout), kept) << sequence;
  }
}

// A model with convolutions, and with statistics that forward writes.
TEST(OffloadActivations, ChangesNoBitWithBatchNorm) {
  const std::string one = train(resnet(), class_loss(), {});
  const std::string folder = ::testing::TempDir();
  EXPECT_EQ(train(resnet(), class_loss(), {1, {.offload_activations = folder}}), one);
  EXPECT_EQ(train(resnet(), class_loss(), {2, {.sync = "zero3", .offload_activations = folder}}),
            one);
}

TEST(OffloadActivations, AFolderThatIsNotThereIsRefused) {
  EXPECT_THROW(train(gpt(), token_loss(), {1, {.offload_activations = "/no/such/folder"}}),
               ConfigError);
}

}  // namespace
}  // namespace trireme::offload_activations_test
