// Shared by tests of bad input: a small module, a program of the Strategy, and what an act says.
#pragma once

#include <ATen/Functions.h>
#include <gmock/gmock.h>
#include <torch/nn/modules/linear.h>

#include <functional>

#include "trireme/models/models.h"
#include "trireme/optim/optimizer.h"
#include "trireme/strategy/strategy.h"
#include "trireme/sync/strategy_context.h"
#include "trireme/sync/sync_plan.h"
#include "trireme/testing/run_ranks.h"

namespace trireme::bad_input_test {

using ::testing::AllOf;
using ::testing::HasSubstr;

struct Net : torch::nn::Module {
  Net() {
    first = register_module("first", torch::nn::Linear(3, 5));
    second = register_module("second", torch::nn::Linear(5, 2));
  }
  at::Tensor forward(const at::Tensor& x) { return second(at::tanh(first(x))); }
  torch::nn::Linear first{nullptr}, second{nullptr};
};

inline at::Tensor input(int number) { return at::full({4, 3}, 0.1 * (number + 1)); }
inline at::Tensor loss_of(Net& net, int number) { return net.forward(input(number)).pow(2).mean(); }

// The message of the E that `act` throws; "" if it throws nothing.
template <class E>
inline std::string said(const std::function<void()>& act) {
  try {
    act();
  } catch (const E& error) {
    return error.what();
  }
  return "";
}

struct Sync {
  std::string name;
  int shard = 0;
};
inline std::vector<Sync> syncs() {
  std::vector<Sync> all;
  for (const std::string& name : parallel::level_names())
    all.push_back({name, parallel::shards_in_groups(name) ? 2 : 0});
  return all;
}

// A rank's Strategy over blocks, and its share of the batches.
struct Program {
  Program(testing::RankContext& context, const models::Blocks& model, StrategyOptions options,
          std::string processor = {})
      : rank(context),
        strategy(env(std::move(processor)), model, std::move(options),
                 optim::make_optimizer(AdamW{.learning_rate = 1e-2})) {}
  parallel::StrategyContext env(std::string processor) {
    parallel::StrategyContext env{.world = rank.world.get(), .processor = std::move(processor)};
    env.assign = [this](const kernel::Assignment& dealt) { assignment = dealt; };
    return env;
  }
  Batch batch(std::int64_t step, std::uint32_t total = 4) const {
    Batch batch{.total = total, .global_count = total, .step = step};
    for (const std::uint32_t i : leaves_of(assignment, total, rank.rank))
      batch.micro.push_back(
          {.index = i,
           .count = 1,
           .fields = {{"features", at::full({2, 3}, 0.1 + static_cast<double>(step + i))}}});
    return batch;
  }
  StepResult step(std::int64_t number, const Loss& loss, std::uint32_t total = 4) {
    return strategy.step(batch(number, total), loss);
  }
  testing::RankContext& rank;
  kernel::Assignment assignment;
  Strategy strategy;
};

inline models::Blocks small_model() { return models::make_mlp({.widths = {3, 5, 2}}); }
inline const Loss kSquares = [](const models::Value& output, const MicroBatch&) {
  return output.at(0).pow(2).sum();
};

}  // namespace trireme::bad_input_test
