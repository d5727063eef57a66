// The advice of a refused step for each cause, with DataParallel and with Strategy.
#include <ATen/Functions.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include <cmath>
#include <functional>
#include <memory>
#include <new>
#include <string>

#include "trireme/base/error.h"
#include "trireme/models/models.h"
#include "trireme/optim/optimizer.h"
#include "trireme/strategy/data_parallel.h"
#include "trireme/strategy/strategy.h"
#include "trireme/sync/strategy_context.h"
#include "trireme/testing/run_ranks.h"

namespace trireme::advice_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

const auto kNothingApplied = HasSubstr("Nothing was applied on any rank");
const auto kLowersTheRate = HasSubstr("lower the learning rate");

std::string refusal(const std::function<void()>& act) {
  try {
    act();
  } catch (const StepRefused& error) {
    return error.what();
  }
  return "nothing was thrown";
}

// The error that two ranks throw if rank 1 uses `loss` and adds `shift` to its micro-batch numbers.
std::string refused_step(const Loss& loss, std::uint32_t shift, const StrategyOptions& options) {
  std::string said;
  testing::run_ranks(2, [&](testing::RankContext& rank) {
    kernel::Assignment shares;
    const parallel::StrategyContext env{
        .world = rank.world.get(), .assign = [&](const kernel::Assignment& own) { shares = own; }};
    Strategy strategy(env, models::make_mlp({.widths = {3, 5, 2}}), options,
                      optim::make_optimizer(Sgd{}));
    Batch batch{.total = 4, .global_count = 4};
    for (const std::uint32_t i : leaves_of(shares, 4, rank.rank))
      batch.micro.push_back({.index = i + (rank.rank == 1 ? shift : 0),
                             .count = 1,
                             .fields = {{"features", at::ones({2, 3})}}});
    const Loss good = [](const models::Value& out, const MicroBatch&) { return out.at(0).sum(); };
    const std::string own =
        refusal([&] { strategy.step(batch, rank.rank == 1 && loss ? loss : good); });
    EXPECT_THAT(own, AllOf(HasSubstr("rank 1 refused the step"), kNothingApplied));
    if (rank.rank == 0) said = own;
  });
  return said;
}

TEST(Advice, ANumberThatIsNotFiniteIsAMatterOfTheLearningRate) {
  for (const StrategyOptions& options : {StrategyOptions{}, {.pipeline = 2}, {.sync = "zero2"}})
    EXPECT_THAT(refused_step([](const models::Value& out,
                                const MicroBatch&) { return out.at(0).sum() * std::nan(""); },
                             0, options),
                AllOf(HasSubstr("the loss of micro-batch"), HasSubstr(" is nan"), kLowersTheRate));
}

TEST(Advice, AMissingFieldIsNot) {
  for (const StrategyOptions& options : {StrategyOptions{}, {.pipeline = 2}, {.sync = "zero2"}})
    EXPECT_THAT(refused_step([](const models::Value&,
                                const MicroBatch& micro) { return micro.field("targets").sum(); },
                             0, options),
                AllOf(HasSubstr("the batch has no field 'targets'"), HasSubstr("It has: features."),
                      Not(kLowersTheRate)));
}

TEST(Advice, AShareThatIsAnotherRanksIsNot) {
  EXPECT_THAT(refused_step({}, 1, {}),
              AllOf(HasSubstr("micro-batch 3 instead of 2"), HasSubstr("Give every rank its share"),
                    Not(kLowersTheRate)));
}

TEST(Advice, MemoryThatIsTooShortForTheModelIsAResource) {
  models::Blocks model;
  model.add_block(
      {.name = "huge", .make = []() -> std::shared_ptr<models::Block> { throw std::bad_alloc(); }});
  testing::run_ranks(1, [&](testing::RankContext& rank) {
    try {
      Strategy strategy({.world = rank.world.get()}, model, {}, optim::make_optimizer(Sgd{}));
      ADD_FAILURE() << "it was built";
    } catch (const ResourceError& error) {
      EXPECT_EQ(error.exit_code(), 170);
      EXPECT_THAT(error.what(), AllOf(HasSubstr("no memory for the model's blocks"),
                                      HasSubstr(" are left "), HasSubstr("batch.micro")));
    }
  });
}

TEST(Advice, OfAModuleInItsOwnLoop) {
  const auto said = [](const std::function<void(torch::nn::Linear&)>& wrong, const char* sync) {
    std::string heard;
    testing::run_ranks(2, [&](testing::RankContext& rank) {
      torch::nn::Linear net(3, 2);
      torch::optim::SGD sgd(net->parameters(), torch::optim::SGDOptions(0.1));
      DataParallel parallel(parallel::StrategyContext{.world = rank.world.get()}, *net, sgd,
                            {.sync = sync});
      net->forward(at::ones({4, 3})).mean().backward();
      if (rank.rank == 1) wrong(net);
      const std::string own = refusal([&] { parallel.step(); });
      if (rank.rank == 0) heard = own;
    });
    return heard;
  };
  for (const char* sync : {"plain", "zero1", "zero2"}) {
    EXPECT_THAT(said(
                    [](torch::nn::Linear& net) {
                      net->forward(at::ones({4, 3})).mean().backward();
                    },
                    sync),
                AllOf(HasSubstr("two gradients in one micro-batch"),
                      HasSubstr("call backward() once"), kNothingApplied, Not(kLowersTheRate)))
        << sync;
    EXPECT_THAT(
        said([](torch::nn::Linear& net) { net->bias.set_data(at::zeros({2}, at::kDouble)); }, sync),
        AllOf(HasSubstr("bias"), HasSubstr("Make a new DataParallel"), Not(kLowersTheRate)))
        << sync;
  }
}

}  // namespace
}  // namespace trireme::advice_test
