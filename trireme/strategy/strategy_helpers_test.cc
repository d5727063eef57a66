// Averaged weights, skipped steps and the gradient noise scale: each is the same on any layout, and
// after a resume.
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
#include "trireme/strategy/strategy_test.h"
#include "trireme/sync/strategy_context.h"
#include "trireme/testing/run_ranks.h"

namespace trireme::strategy_helpers_test {
namespace {

using strategy_test::kBlock;
using strategy_test::kRows;
using strategy_test::micro_batch;
using strategy_test::tiny_gpt;

constexpr std::int64_t kSpike = 7;  // this step's loss is far from the others'

// The loss of a batch of `step`, a hundred times larger in the step of the spike.
Loss spiked(std::int64_t step) {
  return [step](const models::Value& output, const MicroBatch& micro) {
    const at::Tensor loss = token_loss()(output, micro);
    return step == kSpike ? loss * 100 : loss;
  };
}

struct Layout {
  int ranks = 1;
  std::string sync = "plain";
  int shard = 0;
};
const std::vector<Layout>& layouts() {
  static const std::vector<Layout> all = {
      {1}, {2}, {3}, {5}, {2, "zero1"}, {3, "zero2"}, {3, "zero3"}, {4, "hybrid", 2}};
  return all;
}

struct Saved {
  std::map<std::string, at::Tensor> whole;
  std::string metadata;
};

// The results of a training, on rank 0.
struct Outcome {
  std::string hash, average_hash;
  double validation = 0, average_validation = 0;
  std::vector<std::string> skipped;
  std::int64_t skipped_steps = 0;
  std::vector<double> scales;  // -1: none
  Saved state;
};

class Helpers {
 public:
  Helpers(const Layout& layout, StrategyOptions options)
      : layout_(layout), options_(std::move(options)) {
    options_.sync = layout.sync;
    options_.shard = layout.shard;
  }

  // Steps first ... last-1, continued from `from` if it is given.
  Outcome train(std::int64_t first, std::int64_t last, const Saved* from = nullptr) {
    Outcome outcome;
    Saved whole;
    std::mutex mutex;
    testing::run_ranks(layout_.ranks, [&](testing::RankContext& rank) {
      kernel::Assignment assignment;
      parallel::StrategyContext env{.world = rank.world.get()};
      env.assign = [&](const kernel::Assignment& dealt) { assignment = dealt; };
      Strategy strategy(env, tiny_gpt(options_.precision), options_,
                        optim::make_optimizer(AdamW{.learning_rate = 1e-2}));
      if (from != nullptr) load(strategy, *from);
      Outcome own;
      for (std::int64_t step = first; step < last; ++step) {
        const std::uint32_t total = 6;
        Batch batch{.total = total, .global_count = total * kRows * kBlock, .step = step};
        for (const std::uint32_t i : leaves_of(assignment, total, rank.rank))
          batch.micro.push_back(micro_batch(step, i));
        const std::string before = strategy.weights_hash();
        const StepResult result = strategy.step(batch, spiked(step));
        EXPECT_EQ(strategy.weights_hash() == before, !result.skipped.empty()) << "step " << step;
        own.skipped.push_back(result.skipped);
        own.skipped_steps = result.skipped_steps;
        own.scales.push_back(result.noise_scale.value_or(-1));
      }
      look(strategy, leaves_of(assignment, 4, rank.rank), own);
      const auto state = strategy.state();
      const std::lock_guard lock(mutex);
      keep(state, strategy.metadata(), whole);
      if (rank.rank == 0) outcome = std::move(own);
    });
    outcome.state = std::move(whole);
    return outcome;
  }

 private:
  void look(Strategy& strategy, const std::vector<std::uint32_t>& share, Outcome& own) {
    Batch batch{.total = 4, .global_count = 4 * kRows * kBlock, .step = 100};
    for (const std::uint32_t i : share) batch.micro.push_back(micro_batch(100, i));
    own.hash = strategy.weights_hash();
    own.validation = strategy.evaluate({batch}, token_loss());
    strategy.use_average(true);
    own.average_hash = strategy.weights_hash();
    own.average_validation = strategy.evaluate({batch}, token_loss());
    strategy.use_average(false);
    EXPECT_EQ(strategy.weights_hash(), own.hash) << "the trained weights came back";
    EXPECT_EQ(strategy.evaluate({batch}, token_loss()), own.validation);
  }

  static void load(Strategy& strategy, const Saved& from) {
    for (const NamedShard& shard : strategy.state())
      shard.local.flatten().copy_(
          from.whole.at(shard.name).flatten().narrow(0, shard.begin, shard.end - shard.begin));
    strategy.restored(from.metadata);
  }

  static void keep(const std::vector<NamedShard>& state, std::string metadata, Saved& whole) {
    whole.metadata = std::move(metadata);
    for (const NamedShard& shard : state) {
      at::Tensor& tensor = whole.whole[shard.name];
      if (!tensor.defined()) tensor = at::full(shard.shape, std::nan(""), shard.local.options());
      tensor.view({-1})
          .narrow(0, shard.begin, shard.end - shard.begin)
          .copy_(shard.local.flatten());
    }
  }

  Layout layout_;
  StrategyOptions options_;
};

void expect_equal(const Outcome& one, const Outcome& other, const std::string& what) {
  EXPECT_EQ(one.hash, other.hash) << what;
  EXPECT_EQ(one.average_hash, other.average_hash) << what;
  EXPECT_EQ(one.average_validation, other.average_validation) << what;
  EXPECT_EQ(one.skipped, other.skipped) << what;
  EXPECT_EQ(one.skipped_steps, other.skipped_steps) << what;
  EXPECT_EQ(one.scales, other.scales) << what;
}

StrategyOptions all_helpers(const std::string& precision) {
  return {.precision = precision,
          .clip = 0.5,
          .bucket_bytes = 2048,
          .ema = 0.9,
          .outliers = {.limit = 6, .window = 8},
          .noise_scale = true};
}

TEST(StrategyHelpers, HaveTheSameBitsOnEveryLayout) {
  for (const char* precision : {"fp32", "bf16"}) {
    const Outcome one = Helpers({1}, all_helpers(precision)).train(0, 10);
    EXPECT_EQ(one.skipped_steps, 1);
    EXPECT_NE(one.skipped[kSpike], "");
    EXPECT_NE(one.average_hash, one.hash);
    EXPECT_NE(one.average_validation, one.validation);
    EXPECT_GT(one.scales.back(), 0);
    for (const Layout& layout : layouts())
      expect_equal(
          Helpers(layout, all_helpers(precision)).train(0, 10), one,
          std::string(precision) + ", " + layout.sync + " on " + std::to_string(layout.ranks));
  }
}

// The window, the averages and the running means are restored: after a stop right before the spike,
// the spike is still skipped.
TEST(StrategyHelpers, GoOnAfterAResumeOnAnotherLayout) {
  for (const char* precision : {"fp32", "bf16"}) {
    const Outcome whole = Helpers({2}, all_helpers(precision)).train(0, 10);
    const Outcome half = Helpers({1}, all_helpers(precision)).train(0, kSpike);
    for (const Layout& layout : layouts()) {
      const Outcome rest = Helpers(layout, all_helpers(precision)).train(kSpike, 10, &half.state);
      const std::string what = std::string(precision) + ", " + layout.sync;
      EXPECT_EQ(rest.hash, whole.hash) << what;
      EXPECT_EQ(rest.average_hash, whole.average_hash) << what;
      EXPECT_EQ(rest.skipped_steps, 1) << what;
      EXPECT_EQ(rest.scales.back(), whole.scales.back()) << what;
    }
  }
}

TEST(StrategyHelpers, LeaveTheWeightsAlone) {
  StrategyOptions watching = all_helpers("fp32"), plain = watching;
  watching.outliers.limit = plain.outliers.limit = 0;
  plain.ema = 0;
  plain.noise_scale = false;
  const Outcome with = Helpers({2}, watching).train(0, 6);
  const Outcome without = Helpers({2}, plain).train(0, 6);
  EXPECT_EQ(with.hash, without.hash);
  EXPECT_EQ(without.average_hash, without.hash) << "without ema there is nothing to change to";
}

TEST(StrategyHelpers, TheAverageIsThatOfTheWeights) {
  const auto options = [] { return StrategyOptions{.precision = "fp64", .ema = 0.9}; };
  std::map<std::string, at::Tensor> average = Helpers({1}, options()).train(0, 0).state.whole;
  for (std::int64_t steps = 1; steps <= 4; ++steps) {
    const Saved now = Helpers({1}, options()).train(0, steps).state;
    for (auto& [name, mean] : average) {
      if (name.find('/') != std::string::npos) continue;
      mean = mean + (1 - 0.9) * (now.whole.at(name) - mean);
      EXPECT_TRUE(at::equal(now.whole.at("ema/" + name), mean)) << name << " after " << steps;
    }
  }
}

// By the definition: from the norms of each micro-batch's gradient, each taken in its own batch.
TEST(StrategyHelpers, TheNoiseScaleIsThatOfMcCandlish) {
  constexpr std::uint32_t kTotal = 6;
  constexpr double kItems = kRows * kBlock;
  const auto norm_of = [&](const std::vector<std::uint32_t>& indices, StepResult* told) {
    double norm = 0;
    testing::run_ranks(1, [&](testing::RankContext& rank) {
      Strategy strategy(parallel::StrategyContext{.world = rank.world.get()}, tiny_gpt("fp64"),
                        {.precision = "fp64", .noise_scale = true}, optim::make_optimizer(AdamW{}));
      Batch batch{.total = static_cast<std::uint32_t>(indices.size()), .step = 3};
      for (const std::uint32_t index : indices) {
        batch.micro.push_back(micro_batch(3, index));
        batch.micro.back().index = static_cast<std::uint32_t>(batch.micro.size()) - 1;
      }
      const StepResult result = strategy.step(batch, token_loss());
      norm = *result.gradient_norm;
      if (told != nullptr) *told = result;
    });
    return norm;
  };
  double small = 0;
  std::vector<std::uint32_t> all;
  for (std::uint32_t index = 0; index < kTotal; ++index) {
    StepResult alone;
    small += std::pow(norm_of({index}, &alone), 2) / kTotal;
    EXPECT_FALSE(alone.noise_scale.has_value()) << "one micro-batch has nothing to compare with";
    all.push_back(index);
  }
  StepResult result;
  const double large = std::pow(norm_of(all, &result), 2);
  const double noise = (small - large) / (1 / kItems - 1 / (kTotal * kItems));
  const double signal = large - noise / (kTotal * kItems);
  ASSERT_GT(signal, 0);
  ASSERT_TRUE(result.noise_scale.has_value());
  EXPECT_NEAR(*result.noise_scale, noise / signal, 1e-9 * noise / signal);
}

TEST(StrategyHelpers, RefuseNumbersThatCannotBe) {
  testing::run_ranks(1, [&](testing::RankContext& rank) {
    const auto make = [&](StrategyOptions options) {
      Strategy strategy(parallel::StrategyContext{.world = rank.world.get()}, tiny_gpt("fp32"),
                        options, optim::make_optimizer(AdamW{}));
    };
    EXPECT_THROW(make({.ema = 1}), ConfigError);
    EXPECT_THROW(make({.outliers = {.limit = 3, .window = 1}}), ConfigError);
    // Separate copies of the model have no common average, loss or gradient.
    EXPECT_THROW(make({.sync = "local_sgd", .ema = 0.9}), ConfigError);
    EXPECT_THROW(make({.sync = "gossip", .noise_scale = true}), ConfigError);
  });
}

}  // namespace
}  // namespace trireme::strategy_helpers_test
