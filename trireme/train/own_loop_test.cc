// A user's own loop, as in examples/10_own_loop, on simulated ranks: on any layout it trains and
// validates like one process.
#include <ATen/Functions.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>

#include <functional>
#include <string>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/input/batches.h"
#include "trireme/job/job.h"
#include "trireme/models/models.h"
#include "trireme/models/module_block.h"
#include "trireme/net/sim/sim_network.h"
#include "trireme/strategy/strategy.h"

namespace trireme {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Sample i is a function of i.
class Samples final : public Dataset {
 public:
  using Read = std::function<input::Fields(const at::Tensor& numbers)>;
  explicit Samples(Read read) : read_(std::move(read)) {}
  std::int64_t size() const override { return 70; }
  std::int64_t count_items(std::span<const std::int64_t> samples) const override {
    return static_cast<std::int64_t>(samples.size());
  }
  input::Fields read(std::span<const std::int64_t> samples) const override {
    return read_(at::tensor(std::vector<double>(samples.begin(), samples.end())).to(at::kFloat));
  }

 private:
  Read read_;
};

struct Task {
  std::function<models::Blocks()> model;
  Samples::Read read;
  std::vector<Loss> sums;  // the first one is the training loss
};

at::Tensor waves(const at::Tensor& numbers, std::int64_t width) {
  return at::cos(at::outer(numbers + 1, 0.07 * (at::arange(width) + 1)));
}

Task regression() {
  return {.model =
              [] {
                return models::make_mlp({.widths = {8, 24, 16, 8}});
              },
          .read =
              [](const at::Tensor& numbers) {
                const at::Tensor features = waves(numbers, 8);
                return input::Fields{{"features", features}, {"targets", features.flip(1)}};
              },
          .sums = {[](const models::Value& output, const MicroBatch& micro) {
            return (output.at(0) - micro.field("targets")).pow(2).sum();
          }}};
}

// Classifies small images into three classes; has a loss and counts right answers.
Task classification() {
  using namespace torch::nn;
  const auto logits = [](const models::Value& output) { return output.at(0); };
  return {
      .model =
          [] {
            models::Blocks model;
            model.add("first", [] { return Sequential(Conv2d(Conv2dOptions(1, 4, 3)), ReLU()); });
            model.add("second", [] {
              return Sequential(Conv2d(Conv2dOptions(4, 8, 3)), GroupNorm(2, 8), ReLU(), Flatten());
            });
            model.add("head", [] { return Linear(32, 3); });
            return model;
          },
      .read =
          [](const at::Tensor& numbers) {
            const at::Tensor labels = at::remainder(numbers, 3).to(at::kLong);
            const at::Tensor images =
                waves(numbers, 36).view({-1, 1, 6, 6}) + labels.view({-1, 1, 1, 1});
            return input::Fields{{"tokens", images}, {"labels", labels}};
          },
      .sums = {[logits](const models::Value& output, const MicroBatch& micro) {
                 return at::cross_entropy_loss(logits(output), micro.field("labels"), {},
                                               at::Reduction::Sum);
               },
               [logits](const models::Value& output, const MicroBatch& micro) {
                 return logits(output).argmax(1).eq(micro.field("labels")).sum().to(at::kDouble);
               }}};
}

// Experts have capacity for every choice and there is no balancing, so that parts of a sequence are
// routed like the whole.
Task language(int experts) {
  return {.model =
              [experts] {
                return models::make_gpt({.layers = 2,
                                         .heads = 2,
                                         .width = 16,
                                         .block = 8,
                                         .vocab = 11,
                                         .experts = experts,
                                         .capacity_factor = 4,
                                         .balance = 0,
                                         .precision = "fp64"});
              },
          .read =
              [](const at::Tensor& numbers) {
                const at::Tensor tokens =
                    at::remainder(numbers.view({-1, 1}) + at::arange(9).pow(2), 11).to(at::kLong);
                return input::Fields{{"tokens", tokens.narrow(1, 0, 8).contiguous()},
                                     {"targets", tokens.narrow(1, 1, 8).contiguous()}};
              },
          .sums = {token_loss()}};
}

struct Layout {
  int ranks = 1;
  StrategyOptions options = {};
};

std::string name_of(const Layout& layout) {
  const StrategyOptions& o = layout.options;
  return std::to_string(layout.ranks) + " ranks, " + o.sync + ", pipeline " +
         std::to_string(o.pipeline) + ", tensor " + std::to_string(o.tensor) + ", context " +
         std::to_string(o.context) + ", expert " + std::to_string(o.expert);
}

// Runs the loop; returns the losses of its steps and the results of each validation.
std::vector<double> train(Job& job, const Task& task, StrategyOptions options) {
  options.clip = 1;
  Strategy strategy(job, task.model(), options, AdamW{.learning_rate = 1e-2});
  const auto data = std::make_shared<Samples>(task.read);
  Batches input = batches(job, data, {.batch = 16, .micro = 2, .steps = 6, .prefetch = 0});
  const auto held_out = fixed_batches(job, *data, 16, 2, 3);
  std::vector<double> seen;
  for (auto& batch : input) {
    seen.push_back(strategy.step(batch, task.sums.front()).loss);
    if (input.position() % 3 != 0) continue;
    const std::vector<double> means = strategy.evaluate(held_out, task.sums);
    seen.insert(seen.end(), means.begin(), means.end());
  }
  return seen;
}

std::vector<double> train_on(const Layout& layout, const Task& task) {
  std::vector<std::vector<double>> seen(static_cast<std::size_t>(layout.ranks));
  net::SimNetwork network(layout.ranks);
  network.run([&](int rank) {
    Job job(network.transport(rank), {}, nullptr);
    seen[static_cast<std::size_t>(rank)] = train(job, task, layout.options);
  });
  for (const auto& one : seen) EXPECT_EQ(one, seen[0]) << name_of(layout);
  return seen[0];
}

TEST(OwnLoop, ValidatesToTheSameBitsOnEveryLayout) {
  for (const Task& task : {regression(), classification()}) {
    const std::vector<double> one = train_on({}, task);
    for (const Layout& layout : std::vector<Layout>{{2, {}},
                                                    {3, {.sync = "zero1"}},
                                                    {3, {.sync = "zero2"}},
                                                    {2, {.sync = "zero3"}},
                                                    {4, {.sync = "hybrid", .shard = 2}},
                                                    {2, {.pipeline = 2}},
                                                    {3, {.pipeline = 3}},
                                                    {4, {.pipeline = 2}},
                                                    {4, {.sync = "zero3", .pipeline = 2}}})
      EXPECT_EQ(train_on(layout, task), one) << name_of(layout);
  }
}

TEST(OwnLoop, ValidatesAsOneProcessDoesWhereRanksShareLayers) {
  for (const int experts : {0, 4}) {
    const Task task = language(experts);
    const std::vector<double> one = train_on({1, {.precision = "fp64"}}, task);
    std::vector<Layout> layouts = {{2, {.context = 2}}, {4, {.pipeline = 2, .context = 2}}};
    if (experts > 0)
      layouts.insert(layouts.end(), {{2, {.expert = 2}}, {4, {.expert = 2}}});
    else
      layouts.insert(layouts.end(), {{2, {.tensor = 2}}, {4, {.sync = "zero2", .tensor = 2}}});
    for (Layout& layout : layouts) {
      layout.options.precision = "fp64";
      const std::vector<double> seen = train_on(layout, task);
      ASSERT_EQ(seen.size(), one.size());
      for (std::size_t i = 0; i < one.size(); ++i)
        EXPECT_NEAR(seen[i], one[i], 1e-7 * one[i]) << i << ", " << name_of(layout);
    }
  }
}

// Before there is a Strategy, the Job does not know that two ranks form a pipeline.
TEST(OwnLoop, FixedBatchesOfBeforeTheStrategyAreRefused) {
  net::SimNetwork network(2);
  network.run([&](int rank) {
    Job job(network.transport(rank), {}, nullptr);
    const Task task = regression();
    const Samples data(task.read);
    const auto too_early = fixed_batches(job, data, 16, 2, 3);
    Strategy strategy(job, task.model(), {.pipeline = 2}, AdamW{});
    try {
      strategy.evaluate(too_early, task.sums.front());
      FAIL() << "half of the samples";
    } catch (const UnevenInput& error) {
      EXPECT_THAT(error.what(), AllOf(HasSubstr("rank 0 was given micro-batches 0-3 of 8"),
                                      HasSubstr("rank 1 was given micro-batches 4-7 of 8"),
                                      HasSubstr("after the Strategy")));
    }
    EXPECT_GT(strategy.evaluate(fixed_batches(job, data, 16, 2, 3), task.sums.front()), 0);
  });
}

}  // namespace
}  // namespace trireme
