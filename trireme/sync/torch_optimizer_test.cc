#include "trireme/sync/torch_optimizer.h"

#include <ATen/Functions.h>
#include <gtest/gtest.h>
#include <torch/optim/adagrad.h>

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

}  // namespace
}  // namespace trireme::parallel::torch_optimizer_test
