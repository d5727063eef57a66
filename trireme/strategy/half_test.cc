// Training in fp16: the scales, the skipped steps and the hash are equal on every layout. Tells
// overflows from errors.
#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <mutex>

#include "trireme/base/error.h"
#include "trireme/kernel/assignment.h"
#include "trireme/models/models.h"
#include "trireme/optim/optimizer.h"
#include "trireme/strategy/strategy.h"
#include "trireme/sync/strategy_context.h"
#include "trireme/tensor/random.h"
#include "trireme/testing/run_ranks.h"

namespace trireme::half_test {
namespace {

constexpr std::int64_t kBlock = 8, kVocab = 20, kRows = 2;
constexpr std::uint32_t kTotal = 6;  // micro-batches of a step

models::Blocks tiny_gpt(const std::string& precision, int experts = 0) {
  models::GptConfig config{.layers = 2,
                           .heads = 2,
                           .width = 16,
                           .block = kBlock,
                           .vocab = kVocab,
                           .dropout = 0.1,
                           .precision = precision};
  config.experts = experts;
  config.balance = 20;  // most of the gradient is that of the balance loss
  return models::make_gpt(config);
}

MicroBatch micro_batch(std::int64_t step, std::uint32_t index) {
  at::Tensor noise = at::empty({kRows, kBlock + 1}, at::kFloat);
  tensor::fill_uniform(noise, 7, std::to_string(step) + "/" + std::to_string(index), 0, 4);
  const at::Tensor tokens = noise.to(at::kLong).clamp_max(3);
  return {.index = index,
          .first_sample = kRows * index,
          .count = kRows * kBlock,
          .fields = {{"tokens", tokens.narrow(1, 0, kBlock).contiguous()},
                     {"targets", tokens.narrow(1, 1, kBlock).contiguous()}}};
}

struct Layout {
  int ranks = 1;
  std::string sync = "plain";
  int shard = 0;
  int pipeline = 1;
  std::string schedule = "1f1b";
  std::string recompute = "none";
  int experts = 0;
  int tensor = 1, context = 1, expert = 1;
};

std::string name_of(const Layout& layout) {
  return layout.sync + " on " + std::to_string(layout.ranks) + " ranks, pipeline " +
         std::to_string(layout.pipeline) + " " + layout.schedule + " " + layout.recompute;
}

const std::vector<Layout>& layouts() {
  static const std::vector<Layout> all = {{2},
                                          {3},
                                          {4},
                                          {2, "zero1"},
                                          {3, "zero1"},
                                          {3, "zero2"},
                                          {4, "zero2"},
                                          {2, "zero3"},
                                          {3, "zero3"},
                                          {4, "hybrid", 2},
                                          {2, "plain", 0, 1, "1f1b", "full"},
                                          {2, "zero3", 0, 1, "1f1b", "full"},
                                          {2, "plain", 0, 2},
                                          {4, "zero1", 0, 2, "gpipe"},
                                          {4, "zero2", 0, 4, "zb-h1"},
                                          {4, "plain", 0, 2, "zb-v"}};
  return all;
}

struct Saved {
  std::map<std::string, at::Tensor> whole;
  std::string metadata;
};

struct Outcome {
  std::string hash;
  std::vector<double> losses, scales, norms;
  std::vector<std::int64_t> overflows, skipped;
  std::vector<std::string> why;
  std::string refusal;  // what the run ended with, if it did
  Saved state;
};

using LossOf = std::function<Loss(std::int64_t step)>;

void load(Strategy& strategy, const Saved& from) {
  for (const NamedShard& shard : strategy.state())
    shard.local.flatten().copy_(
        from.whole.at(shard.name).flatten().narrow(0, shard.begin, shard.end - shard.begin));
  strategy.restored(from.metadata);
}

void keep(const std::vector<NamedShard>& state, std::string metadata, Saved& whole) {
  whole.metadata = std::move(metadata);
  for (const NamedShard& shard : state) {
    at::Tensor& tensor = whole.whole[shard.name];
    if (!tensor.defined()) tensor = at::full(shard.shape, std::nan(""), shard.local.options());
    tensor.view({-1}).narrow(0, shard.begin, shard.end - shard.begin).copy_(shard.local.flatten());
  }
}

// Runs steps first ... last-1 on one rank; all ranks must get the same outcome.
void train_here(testing::RankContext& rank, const Layout& layout, StrategyOptions options,
                std::int64_t first, std::int64_t last, const LossOf& loss, const Saved* from,
                Outcome& own, const std::function<void(Strategy&)>& then) {
  kernel::Assignment assignment;
  parallel::StrategyContext env{.world = rank.world.get()};
  env.assign = [&](const kernel::Assignment& dealt) { assignment = dealt; };
  options.sync = layout.sync;
  options.shard = layout.shard;
  options.pipeline = layout.pipeline;
  options.schedule = layout.schedule;
  options.recompute = layout.recompute;
  options.tensor = layout.tensor;
  options.context = layout.context;
  options.expert = layout.expert;
  options.bucket_bytes = 2048;
  Strategy strategy(env, tiny_gpt(options.precision, layout.experts), options,
                    optim::make_optimizer(AdamW{.learning_rate = 1e-2}));
  if (from != nullptr) load(strategy, *from);
  try {
    for (std::int64_t step = first; step < last; ++step) {
      Batch batch{.total = kTotal, .global_count = kTotal * kRows * kBlock, .step = step};
      for (const std::uint32_t i : leaves_of(assignment, kTotal, rank.rank))
        batch.micro.push_back(micro_batch(step, i));
      const std::string before = strategy.weights_hash();
      const StepResult result = strategy.step(batch, loss(step));
      EXPECT_EQ(strategy.weights_hash() == before, !result.skipped.empty()) << "step " << step;
      own.losses.push_back(result.loss);
      own.norms.push_back(result.gradient_norm.value_or(0));
      own.scales.push_back(result.loss_scale.value_or(0));
      own.overflows.push_back(result.overflows);
      own.skipped.push_back(result.skipped_steps);
      own.why.push_back(result.skipped);
    }
  } catch (const StepRefused& refused) {
    own.refusal = refused.message();
  }
  own.hash = strategy.weights_hash();
  then(strategy);
}

void expect_equal(const Outcome& own, const Outcome& wanted, const std::string& what) {
  EXPECT_EQ(own.hash, wanted.hash) << what;
  EXPECT_EQ(own.scales, wanted.scales) << what;
  EXPECT_EQ(own.overflows, wanted.overflows) << what;
  EXPECT_EQ(own.skipped, wanted.skipped) << what;
  ASSERT_EQ(own.losses.size(), wanted.losses.size()) << what;
  for (std::size_t i = 0; i < own.losses.size(); ++i) {
    if (!std::isnan(wanted.losses[i])) {
      EXPECT_EQ(own.losses[i], wanted.losses[i]) << what;
    }
    EXPECT_EQ(own.norms[i], wanted.norms[i]) << what;
  }
}

Outcome train(
    const Layout& layout, const StrategyOptions& options, std::int64_t last,
    const LossOf& loss = [](std::int64_t) { return token_loss(); }, std::int64_t first = 0,
    const Saved* from = nullptr) {
  std::vector<Outcome> outcomes(static_cast<std::size_t>(layout.ranks));
  Saved whole;
  std::mutex mutex;
  testing::run_ranks(layout.ranks, [&](testing::RankContext& rank) {
    Outcome& own = outcomes[static_cast<std::size_t>(rank.rank)];
    train_here(rank, layout, options, first, last, loss, from, own, [&](Strategy& strategy) {
      if (!own.refusal.empty()) return;
      const auto state = strategy.state();
      const std::lock_guard lock(mutex);
      keep(state, strategy.metadata(), whole);
    });
  });
  for (const Outcome& own : outcomes) {
    expect_equal(own, outcomes[0], "another rank of " + name_of(layout));
    EXPECT_EQ(own.why, outcomes[0].why);
  }
  outcomes[0].state = std::move(whole);
  return outcomes[0];
}

StrategyOptions in_fp16(double initial = 65536, std::int64_t window = 2000) {
  return {.precision = "fp16",
          .loss_scale = LossScaleOptions{.initial = initial, .window = window},
          .clip = 0.5};
}

// Multiplies the loss of micro-batch `index` in step `at` by `factor`.
LossOf times(std::int64_t at, std::uint32_t index, double factor) {
  return [=](std::int64_t step) -> Loss {
    return [=](const models::Value& output, const MicroBatch& micro) {
      const at::Tensor loss = token_loss()(output, micro);
      return step == at && micro.index == index ? loss * factor : loss;
    };
  };
}

// The scale starts where gradients overflow, falls until they do not, and doubles again after
// two steps. So it changes many times.
TEST(Half, HasOneHashAndOneScaleOnEveryLayout) {
  const StrategyOptions options = in_fp16(0x1p22, 2);
  const Outcome one = train({1}, options, 14);
  EXPECT_GT(one.overflows.back(), 3);
  EXPECT_LT(one.overflows.back(), 10) << "some steps are taken";
  EXPECT_EQ(one.skipped.back(), 0) << "they are not counted as faults";
  EXPECT_TRUE(std::adjacent_find(one.scales.begin(), one.scales.end(), std::less<>()) !=
              one.scales.end())
      << "it grows, too";
  for (const Layout& layout : layouts())
    expect_equal(train(layout, options, 14), one, name_of(layout));
}

TEST(Half, HasTheSameBitsBesideAveragesOutliersAndNoise) {
  StrategyOptions options = in_fp16(0x1p22, 2);
  options.ema = 0.9;
  options.outliers = {.limit = 6, .window = 8};
  options.noise_scale = true;
  const Outcome one = train({1}, options, 14);
  EXPECT_EQ(one.hash, train({1}, in_fp16(0x1p22, 2), 14).hash);
  for (const Layout& layout : {Layout{2}, {3, "zero1"}, {3, "zero2"}, {2, "zero3"}})
    expect_equal(train(layout, options, 14), one, name_of(layout));
}

// The scale is a power of two and is divided out before any other use of a gradient. Norms and
// clipping are therefore those of a scale of 1, up to the rounding of fp16.
TEST(Half, IsUnscaledBeforeItIsClipped) {
  StrategyOptions options = in_fp16();
  options.loss_scale = LossScaleOptions{.dynamic = false, .initial = 256};
  const Outcome low = train({2}, options, 1);
  options.loss_scale->initial = 4096;
  const Outcome high = train({2}, options, 1);
  options.precision = "fp32";
  options.loss_scale.reset();
  const Outcome wide = train({2}, options, 1);
  EXPECT_NEAR(low.norms[0], wide.norms[0], 5e-3 * wide.norms[0]);
  EXPECT_NEAR(high.norms[0], low.norms[0], 5e-3 * wide.norms[0]);
}

// Only one rank's batch overflows: all ranks skip the step and name that rank.
TEST(Half, AnOverflowOnOneRankIsOneOnAll) {
  for (const Layout& layout : {Layout{3}, {3, "zero3"}, {2, "plain", 0, 2}}) {
    const Outcome all = train(layout, in_fp16(1024), 4, times(2, 5, 1e6));
    EXPECT_EQ(all.overflows, (std::vector<std::int64_t>{0, 0, 1, 1})) << name_of(layout);
    EXPECT_EQ(all.scales, (std::vector<double>{1024, 1024, 512, 512})) << name_of(layout);
    EXPECT_EQ(all.skipped.back(), 0);
    EXPECT_TRUE(std::isfinite(all.losses[2])) << "a loss is not scaled";
    const std::string& why = all.why[2];
    EXPECT_NE(why.find("is not finite in micro-batch 5"), std::string::npos) << why;
    EXPECT_NE(why.find("; the loss scale falls from 1024 to 512"), std::string::npos) << why;
    EXPECT_EQ(why.find("on rank "), 0u) << why;
  }
}

// Three tests of what no scale can repair: at a scale of 1, at a fixed scale, and in a loss.
TEST(Half, AtAScaleOfOneAnInfinityIsAFault) {
  StrategyOptions options = in_fp16(2);
  options.skip_not_finite = 1;
  for (const Layout& layout : {Layout{2}, {2, "plain", 0, 2}}) {
    const LossOf always = [](std::int64_t) -> Loss {
      return [](const models::Value& output, const MicroBatch& micro) {
        return token_loss()(output, micro) * 1e30;
      };
    };
    const Outcome all = train(layout, options, 5, always);
    EXPECT_EQ(all.overflows, (std::vector<std::int64_t>{1, 1}));
    EXPECT_EQ(all.skipped, (std::vector<std::int64_t>{0, 1}));
    EXPECT_EQ(all.scales, (std::vector<double>{1, 1}));
    EXPECT_NE(all.refusal.find("train.skip_not_finite is 1"), std::string::npos) << all.refusal;
  }
}

TEST(Half, AScaleThatWasGivenDoesNotMove) {
  StrategyOptions options = in_fp16();
  options.loss_scale = LossScaleOptions{.dynamic = false, .initial = 64, .window = 1};
  const Outcome steady = train({2}, options, 4);
  EXPECT_EQ(steady.scales, std::vector<double>(4, 64));
  EXPECT_EQ(steady.overflows.back(), 0);
  options.skip_not_finite = 2;
  const Outcome faulty = train({2}, options, 4, times(1, 4, 1e30));
  EXPECT_EQ(faulty.skipped, (std::vector<std::int64_t>{0, 1, 1, 1}));
  EXPECT_EQ(faulty.overflows.back(), 0);
}

TEST(Half, ALossThatIsNoNumberIsAFaultAtAnyScale) {
  StrategyOptions options = in_fp16(1024);
  options.skip_not_finite = 3;
  const Outcome all = train({3}, options, 3, times(1, 0, std::nan("")));
  EXPECT_EQ(all.skipped, (std::vector<std::int64_t>{0, 1, 1}));
  EXPECT_EQ(all.overflows.back(), 0);
  EXPECT_EQ(all.scales.back(), 1024);
}

// Whichever ranks they are on, the error counts, because no scale would help.
TEST(Half, AFaultComesBeforeAnOverflow) {
  const LossOf both = [](std::int64_t step) -> Loss {
    return [=](const models::Value& output, const MicroBatch& micro) {
      const at::Tensor loss = token_loss()(output, micro);
      if (step != 1) return loss;
      return micro.index == 0 ? loss * 1e30 : micro.index == 5 ? loss * std::nan("") : loss;
    };
  };
  StrategyOptions options = in_fp16(1024);
  options.skip_not_finite = 3;
  for (const Layout& layout : {Layout{1}, {3}, {3, "zero2"}, {2, "plain", 0, 2}}) {
    const Outcome all = train(layout, options, 3, both);
    EXPECT_EQ(all.skipped, (std::vector<std::int64_t>{0, 1, 1})) << name_of(layout);
    EXPECT_EQ(all.overflows.back(), 0) << name_of(layout);
    EXPECT_EQ(all.scales.back(), 1024) << name_of(layout);
  }
}

// The experts' balance loss enters backward midway: in a pipeline, before the last stage.
TEST(Half, ScalesTheBalanceOfExperts) {
  StrategyOptions wide{.precision = "fp32", .clip = 0.5};
  const Layout one{.experts = 4}, two{.ranks = 2, .pipeline = 2, .experts = 4};
  const Outcome whole = train(one, wide, 1), narrow = train(one, in_fp16(4096), 1);
  EXPECT_NEAR(narrow.norms[0], whole.norms[0], 0.02 * whole.norms[0]);
  expect_equal(train(two, in_fp16(4096), 3), train(one, in_fp16(4096), 3), "a pipeline");
}

// All ranks start backward with the same scaled gradient, though each has a part of the loss.
TEST(Half, OnRanksThatShareALayerIsNearOneProcess) {
  const LossOf loss = times(2, 5, 1e30);
  for (const Layout& layout : {Layout{.ranks = 2, .tensor = 2},
                               {.ranks = 2, .context = 2},
                               {.ranks = 4, .sync = "zero2", .tensor = 2},
                               {.ranks = 2, .experts = 4, .expert = 2}}) {
    const std::string what = name_of(layout) + ", tensor " + std::to_string(layout.tensor) +
                             ", context " + std::to_string(layout.context);
    const Outcome one = train({.experts = layout.experts}, in_fp16(1024), 4, loss);
    const Outcome all = train(layout, in_fp16(1024), 4, loss);
    ASSERT_EQ(all.overflows, (std::vector<std::int64_t>{0, 0, 1, 1})) << what << all.refusal;
    EXPECT_EQ(all.scales, one.scales) << what;
    for (const std::size_t step : {0, 1, 3}) {
      EXPECT_NEAR(all.losses[step], one.losses[step], 5e-3 * one.losses[step]) << what;
      EXPECT_NEAR(all.norms[step], one.norms[step], 2e-2 * one.norms[step]) << what;
    }
  }
}

// The checkpoint is in the middle of a window and after an overflow.
TEST(Half, GoesOnFromACheckpointOnAnotherLayout) {
  const StrategyOptions options = in_fp16(0x1p22, 3);
  const Outcome straight = train({2}, options, 16);
  const Outcome begun = train({3, "zero1"}, options, 11);
  ASSERT_GT(begun.overflows.back(), 0);
  const auto tail = [](const auto& all) { return std::vector(all.end() - 5, all.end()); };
  for (const Layout& layout :
       {Layout{1}, {2}, {4}, {3, "zero2"}, {2, "zero3"}, {4, "hybrid", 2}, {2, "plain", 0, 2}}) {
    const Outcome rest = train(
        layout, options, 16, [](std::int64_t) { return token_loss(); }, 11, &begun.state);
    EXPECT_EQ(rest.hash, straight.hash) << name_of(layout);
    EXPECT_EQ(rest.scales, tail(straight.scales)) << name_of(layout);
    EXPECT_EQ(rest.overflows, tail(straight.overflows)) << name_of(layout);
  }
}

TEST(Half, LearnsAsFp32Does) {
  StrategyOptions wide{.precision = "fp32", .clip = 0.5};
  const Outcome narrow = train({2}, in_fp16(), 60), whole = train({2}, wide, 60);
  const auto mean_of_last = [](const Outcome& outcome) {
    double sum = 0;
    for (std::size_t i = 50; i < 60; ++i) sum += outcome.losses[i] / 10;
    return sum;
  };
  EXPECT_LT(mean_of_last(whole), 0.75 * whole.losses.front());
  EXPECT_NEAR(mean_of_last(narrow), mean_of_last(whole), 0.01);
  EXPECT_NE(narrow.hash, whole.hash);
}

TEST(Half, RefusesAScaleThatCannotBe) {
  testing::run_ranks(2, [&](testing::RankContext& rank) {
    const auto make = [&](const StrategyOptions& options) {
      Strategy({.world = rank.world.get()}, tiny_gpt(options.precision), options,
               optim::make_optimizer(Sgd{}));
    };
    for (const char* precision : {"fp32", "bf16", "fp64"})
      EXPECT_THROW(make({.precision = precision, .loss_scale = LossScaleOptions{}}), ConfigError);
    EXPECT_THROW(make({.precision = "fp16", .loss_scale = LossScaleOptions{.initial = 1000}}),
                 ConfigError);
    EXPECT_THROW(make({.precision = "half"}), ConfigError);
    // The model is of another type.
    EXPECT_THROW(Strategy({.world = rank.world.get()}, tiny_gpt("bf16"), {.precision = "fp16"},
                          optim::make_optimizer(Sgd{})),
                 ConfigError);
  });
}

// Both types have 16 bits, so sizes do not reveal the mismatch.
TEST(Half, RefusesARankInBf16) {
  testing::run_ranks(2, [&](testing::RankContext& rank) {
    const std::string precision = rank.rank == 0 ? "fp16" : "bf16";
    EXPECT_THROW(Strategy({.world = rank.world.get()}, tiny_gpt(precision),
                          {.precision = precision}, optim::make_optimizer(Sgd{})),
                 MismatchError);
  });
}

}  // namespace
}  // namespace trireme::half_test
