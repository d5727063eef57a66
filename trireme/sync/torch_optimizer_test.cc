#include "trireme/sync/torch_optimizer.h"

#include <ATen/Functions.h>
#include <gtest/gtest.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/sgd.h>

#include "trireme/base/error.h"
#include "trireme/sync/levels/optimizer_shards.h"

namespace trireme::parallel::torch_optimizer_test {
namespace {

TEST(TorchOptimizer, AdagradsStateStartsAgainFromItsOwnValue) {
  at::Tensor weight = at::ones({4}).set_requires_grad(true);
  torch::optim::Adagrad adagrad({weight},
                                torch::optim::AdagradOptions(0.1).initial_accumulator_value(0.5));
  {
    const OptimizerShards shards(
        adagrad, {weight},
        {{.parameter = 0, .begin = 0, .end = 2, .tensor = weight.detach().narrow(0, 0, 2)}});
  }
  const auto state = state_tensors(adagrad, weight);
  ASSERT_EQ(state.size(), 1u);
  EXPECT_EQ(state[0].first, "sum");
  EXPECT_TRUE(at::equal(state[0].second, at::full({4}, 0.5)));
}

struct OwnState : torch::optim::OptimizerCloneableParamState<OwnState> {};

// Such as that of an optimizer that derives from LibTorch's and has its own step().
TEST(TorchOptimizer, AStateOfAnotherTypeIsLeftAlone) {
  const at::Tensor weight = at::ones({4}).set_requires_grad(true);
  torch::optim::SGD sgd({weight}, torch::optim::SGDOptions(0.1).momentum(0.9));
  torch::optim::Adam adam({weight}, torch::optim::AdamOptions(0.1));
  for (torch::optim::Optimizer* optimizer : std::vector<torch::optim::Optimizer*>{&sgd, &adam}) {
    auto& slot = optimizer->state()[weight.unsafeGetTensorImpl()];
    slot = std::make_unique<OwnState>();
    const void* const own = slot.get();
    EXPECT_TRUE(state_tensors(*optimizer, weight).empty());
    EXPECT_FALSE(has_momentum(*optimizer, weight));
    set_updates(*optimizer, weight, 5);
    EXPECT_EQ(updates(*optimizer, weight), 0);
    EXPECT_THROW(
        OptimizerShards(
            *optimizer, {weight},
            {{.parameter = 0, .begin = 0, .end = 2, .tensor = weight.detach().narrow(0, 0, 2)}}),
        ConfigError);
    EXPECT_EQ(optimizer->state()[weight.unsafeGetTensorImpl()].get(), own);
  }
}

}  // namespace
}  // namespace trireme::parallel::torch_optimizer_test
