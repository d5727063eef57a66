// Shared by the tests in which ranks share layers: a rank's Strategy on a small model, a few steps
// of it on any mesh, and a comparison with another training.
#pragma once

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/kernel/assignment.h"
#include "trireme/optim/optimizer.h"
#include "trireme/strategy/strategy.h"
#include "trireme/sync/strategy_context.h"
#include "trireme/tensor/random.h"
#include "trireme/testing/run_ranks.h"

namespace trireme::hybrid {

constexpr std::int64_t kBlock = 8, kVocab = 22;  // 4 ranks hold 5, 6, 5, 6 rows
constexpr int kSteps = 3;

/// Has `sequences` sequences; the last micro-batch of an odd step has half as many.
inline MicroBatch micro_batch(std::int64_t step, std::uint32_t index, std::uint32_t total,
                              std::int64_t sequences = 2) {
  const std::int64_t rows = index + 1 == total && step % 2 == 1 ? sequences / 2 : sequences;
  at::Tensor noise = at::empty({rows, kBlock + 1}, at::kFloat);
  tensor::fill_uniform(noise, 7, std::to_string(step) + "/" + std::to_string(index), 0, kVocab);
  const at::Tensor tokens = noise.to(at::kLong).clamp_max(kVocab - 1);
  return {.index = index,
          .first_sample = sequences * index,
          .count = rows * kBlock,
          .fields = {{"tokens", tokens.narrow(1, 0, kBlock).contiguous()},
                     {"targets", tokens.narrow(1, 1, kBlock).contiguous()}}};
}

inline Batch batch_of(std::int64_t step, std::uint32_t total, int rank,
                      const kernel::Assignment& assignment, std::int64_t sequences = 2) {
  Batch batch{.total = total, .step = step};
  for (std::uint32_t i = 0; i < total; ++i)
    batch.global_count += micro_batch(step, i, total, sequences).count;
  for (const std::uint32_t i : leaves_of(assignment, total, rank))
    batch.micro.push_back(micro_batch(step, i, total, sequences));
  return batch;
}

// A rank's Strategy and the assignment of its micro-batches.
struct Rank {
  Rank(testing::RankContext& context, const models::Blocks& model, StrategyOptions options,
       const OptimizerOptions& optimizer = AdamW{.learning_rate = 1e-2})
      : rank(context.rank), env{.world = context.world.get()} {
    env.assign = [this](const kernel::Assignment& dealt) { assignment = dealt; };
    options.bucket_bytes = 2048;
    strategy.emplace(env, model, std::move(options), optim::make_optimizer(optimizer));
  }
  StepResult step(int number, std::uint32_t total = 8, std::int64_t sequences = 2) {
    return strategy->step(batch_of(number, total, rank, assignment, sequences), token_loss());
  }
  int rank;
  kernel::Assignment assignment;
  parallel::StrategyContext env;
  std::optional<Strategy> strategy;
};

struct Layout {
  int data = 1;  // data x shard ranks
  StrategyOptions options = {};
  int ranks() const { return options.pipeline * data * options.context * options.tensor; }
};

inline std::string name_of(const Layout& layout) {
  const StrategyOptions& o = layout.options;
  return "pipeline " + std::to_string(o.pipeline) + " x data " + std::to_string(layout.data) +
         (o.expert > 1 ? ", expert " + std::to_string(o.expert) : "") + " x context " +
         std::to_string(o.context) + " x tensor " + std::to_string(o.tensor) +
         (o.sequence ? ", sequence, " : ", ") + o.sync + ", " + o.schedule + ", recompute " +
         o.recompute;
}

struct Outcome {
  std::string hash;
  std::vector<double> losses, norms;
  double validation = 0;
  friend bool operator==(const Outcome&, const Outcome&) = default;
};
struct Trained {
  Outcome outcome;
  std::map<std::string, at::Tensor> state;  // whole, flat
  std::string metadata;
};

// Copies `shards` into whole tensors and checks the number of their elements.
inline void gather(const std::vector<NamedShard>& shards, std::map<std::string, at::Tensor>& into) {
  for (const NamedShard& shard : shards) {
    std::int64_t count = 1;
    for (const std::int64_t size : shard.shape) count *= size;
    at::Tensor& whole = into[shard.name];
    if (!whole.defined()) whole = at::full({count}, NAN, shard.local.options());
    ASSERT_EQ(whole.numel(), count) << shard.name;
    whole.narrow(0, shard.begin, shard.end - shard.begin).copy_(shard.local.flatten());
  }
}

struct Course {
  const Trained* from = nullptr;
  int first = 0, last = kSteps;
  std::int64_t sequences = 2;  // of a micro-batch
  OptimizerOptions optimizer = AdamW{.learning_rate = 1e-2};
};

inline Trained train(const models::Blocks& model, Layout layout, const Course& course = {}) {
  layout.options.clip = 0.5;
  Trained trained;
  std::mutex mutex;
  std::vector<Outcome> all(static_cast<std::size_t>(layout.ranks()));
  testing::run_ranks(layout.ranks(), [&](testing::RankContext& context) {
    Rank rank(context, model, layout.options, course.optimizer);
    Outcome& own = all[static_cast<std::size_t>(context.rank)];
    if (course.from != nullptr) {
      for (const NamedShard& shard : rank.strategy->state())
        shard.local.flatten().copy_(
            course.from->state.at(shard.name).narrow(0, shard.begin, shard.end - shard.begin));
      rank.strategy->restored(course.from->metadata);
    }
    for (int step = course.first; step < course.last; ++step) {
      const std::uint32_t total = step == 1 ? 5 : 8;
      const StepResult result = rank.step(step, total, course.sequences);
      EXPECT_EQ(result.count, batch_of(step, total, 0, {}, course.sequences).global_count);
      own.losses.push_back(result.loss);
      own.norms.push_back(result.gradient_norm.value_or(0));
    }
    own.validation = rank.strategy->evaluate(
        {batch_of(100, 4, context.rank, rank.assignment, course.sequences)}, token_loss());
    own.hash = rank.strategy->weights_hash();
    const auto state = rank.strategy->state();
    const std::lock_guard lock(mutex);
    trained.metadata = rank.strategy->metadata();
    gather(state, trained.state);
  });
  for (const Outcome& one : all) EXPECT_EQ(one, all[0]) << name_of(layout);
  trained.outcome = all[0];
  return trained;
}

inline void expect_near(const Trained& own, const Trained& one, double tolerance,
                        const std::string& where) {
  ASSERT_EQ(own.state.size(), one.state.size()) << where;
  for (const auto& [name, whole] : one.state) {
    const at::Tensor mine = own.state.at(name);
    ASSERT_EQ(mine.sizes(), whole.sizes()) << name << ", " << where;
    EXPECT_LE((mine - whole).norm().item<double>(), tolerance * whole.norm().item<double>())
        << name << ", " << where;
  }
  for (std::size_t i = 0; i < one.outcome.losses.size(); ++i) {
    EXPECT_NEAR(own.outcome.losses[i], one.outcome.losses[i], tolerance * one.outcome.losses[i])
        << where;
    EXPECT_NEAR(own.outcome.norms[i], one.outcome.norms[i], tolerance * one.outcome.norms[i])
        << where;
  }
  EXPECT_NEAR(own.outcome.validation, one.outcome.validation, tolerance * one.outcome.validation)
      << where;
}

inline std::string refusal(int ranks, const models::Blocks& model, const StrategyOptions& options,
                           const OptimizerOptions& optimizer = AdamW{}) {
  std::string message;
  testing::run_ranks(ranks, [&](testing::RankContext& context) {
    try {
      Rank rank(context, model, options, optimizer);
      rank.step(0);
      ADD_FAILURE() << "it was accepted";
    } catch (const ConfigError& error) {
      if (context.rank == 0) message = error.what();
    }
  });
  return message;
}

}  // namespace trireme::hybrid
