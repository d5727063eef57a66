// A model, batches and a short training on ranks of the simulated network, for tests that compare
// its bits with one process's.
#pragma once

#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "trireme/kernel/assignment.h"
#include "trireme/models/models.h"
#include "trireme/optim/optimizer.h"
#include "trireme/strategy/strategy.h"
#include "trireme/sync/strategy_context.h"
#include "trireme/tensor/random.h"
#include "trireme/testing/run_ranks.h"

namespace trireme::parallel::test {

constexpr std::int64_t kBlock = 8, kVocab = 20;

inline models::Blocks gpt(const std::string& precision = "fp32", int layers = 3) {
  return models::make_gpt({.layers = layers,
                           .heads = 2,
                           .width = 16,
                           .block = kBlock,
                           .vocab = kVocab,
                           .dropout = 0.1,
                           .precision = precision});
}

inline models::Blocks mlp() {
  return models::make_mlp({.widths = {kBlock, 12, 16, 8, 3}, .input = "numbers"});
}

// Micro-batch `index` of step `step`, from nothing else. The last one of an odd step is short.
inline MicroBatch micro_batch(std::int64_t step, std::uint32_t index, std::uint32_t total) {
  const std::int64_t rows = index + 1 == total && step % 2 == 1 ? 1 : 2;
  at::Tensor noise = at::empty({rows, kBlock + 1}, at::kFloat);
  tensor::fill_uniform(noise, 7, std::to_string(step) + "/" + std::to_string(index), 0, 4);
  const at::Tensor tokens = noise.to(at::kLong).clamp_max(3);
  return {.index = index,
          .first_sample = 2 * index,
          .count = rows * kBlock,
          .fields = {{"tokens", tokens.narrow(1, 0, kBlock).contiguous()},
                     {"targets", tokens.narrow(1, 1, kBlock).contiguous()},
                     {"numbers", noise.narrow(1, 0, kBlock).contiguous()},
                     {"wanted", noise.narrow(1, 0, 3).contiguous()}}};
}

inline Batch batch_of(std::int64_t step, std::uint32_t total, int rank,
                      const kernel::Assignment& assignment) {
  Batch batch{.total = total, .step = step};
  for (std::uint32_t i = 0; i < total; ++i) batch.global_count += micro_batch(step, i, total).count;
  for (const std::uint32_t i : leaves_of(assignment, total, rank))
    batch.micro.push_back(micro_batch(step, i, total));
  return batch;
}

inline Loss squared_loss() {
  return [](const models::Value& output, const MicroBatch& micro) {
    return (output.at(0) - micro.field("wanted")).pow(2).sum();
  };
}

struct Outcome {
  std::string hash;
  std::vector<double> losses, norms;
  double validation = 0;
  friend bool operator==(const Outcome&, const Outcome&) = default;
};

struct Layout {
  int pipeline = 1, data = 1;
  std::string schedule = "1f1b";
  int chunks = 0;
  std::string sync = "plain";
  std::string recompute = "none";
  int shard = 0;  // hybrid
  std::string offload = {}, offload_activations = {};
};

struct Model {
  std::function<models::Blocks()> make;
  Loss loss;
  OptimizerOptions optimizer = AdamW{.learning_rate = 1e-2};
  std::string precision = "fp32";
};

inline Outcome train(testing::RankContext& rank, const Model& model, const Layout& layout) {
  kernel::Assignment assignment;
  parallel::StrategyContext env{.world = rank.world.get()};
  env.assign = [&](const kernel::Assignment& dealt) { assignment = dealt; };
  Strategy strategy(env, model.make(),
                    {.sync = layout.sync,
                     .pipeline = layout.pipeline,
                     .schedule = layout.schedule,
                     .chunks = layout.chunks,
                     .shard = layout.shard,
                     .precision = model.precision,
                     .clip = 0.5,
                     .bucket_bytes = 2048,
                     .offload = layout.offload,
                     .recompute = layout.recompute,
                     .offload_activations = layout.offload_activations},
                    optim::make_optimizer(model.optimizer));
  Outcome outcome;
  for (int step = 0; step < 3; ++step) {
    const std::uint32_t total = step == 1 ? 5 : 8;
    const Batch batch = batch_of(step, total, rank.rank, assignment);
    const StepResult result = strategy.step(batch, model.loss);
    EXPECT_EQ(result.count, batch.global_count);
    outcome.losses.push_back(result.loss);
    outcome.norms.push_back(result.gradient_norm.value_or(0));
  }
  const Batch held_out = batch_of(100, 4, rank.rank, assignment);
  outcome.validation = strategy.evaluate({held_out, held_out}, model.loss);
  outcome.hash = strategy.weights_hash();
  return outcome;
}

inline Outcome train_on(const Model& model, const Layout& layout) {
  const int ranks = layout.pipeline * layout.data;
  std::vector<Outcome> outcomes(static_cast<std::size_t>(ranks));
  testing::run_ranks(ranks, [&](testing::RankContext& rank) {
    outcomes[static_cast<std::size_t>(rank.rank)] = train(rank, model, layout);
  });
  for (const Outcome& outcome : outcomes) EXPECT_EQ(outcome, outcomes[0]);
  return outcomes[0];
}

inline std::string name_of(const Layout& layout) {
  return layout.schedule + " on " + std::to_string(layout.pipeline) + " x " +
         std::to_string(layout.data) + ", " + layout.sync + ", recompute " + layout.recompute;
}

}  // namespace trireme::parallel::test
