// More than 2^16 parameters: each has its own gradient.
#include <ATen/Functions.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>
#include <torch/nn/module.h>
#include <torch/optim/sgd.h>

#include <string>
#include <vector>

#include "trireme/models/module_block.h"
#include "trireme/optim/optimizer.h"
#include "trireme/strategy/data_parallel.h"
#include "trireme/strategy/strategy.h"
#include "trireme/sync/strategy_context.h"
#include "trireme/testing/run_ranks.h"

namespace trireme::many_parameters_test {
namespace {

constexpr int kMany = 65'536 + 3;

// forward() uses two parameters whose numbers are equal in their low 16 bits.
struct Many : torch::nn::Module {
  Many() {
    for (int i = 0; i < kMany; ++i)
      all.push_back(register_parameter("p" + std::to_string(i), at::zeros({1})));
  }
  at::Tensor forward(const at::Tensor& x) { return x * (all[1] + 10 * all[65'536 + 1]); }
  std::vector<at::Tensor> all;
};

void expect_trained(const std::vector<at::Tensor>& parameters) {
  for (int i = 0; i < kMany; ++i) {
    const double wanted = i == 1 ? -1 : i == 65'536 + 1 ? -10 : 0;
    ASSERT_EQ(parameters[static_cast<std::size_t>(i)].item<double>(), wanted) << "parameter " << i;
  }
}

TEST(ManyParameters, OfAModuleHaveTheirOwnGradients) {
  testing::run_ranks(1, [](testing::RankContext& rank) {
    Many net;
    torch::optim::SGD sgd(net.parameters(), torch::optim::SGDOptions(1));
    DataParallel parallel(parallel::StrategyContext{.world = rank.world.get()}, net, sgd);
    net.forward(at::ones({1})).sum().backward();
    ASSERT_TRUE(parallel.step());
    expect_trained(net.all);
  });
}

TEST(ManyParameters, OfABlockHaveTheirOwnGradients) {
  testing::run_ranks(1, [&](testing::RankContext& rank) {
    std::shared_ptr<Many> net;
    models::Blocks model;
    model.add("many", [&net] { return net = std::make_shared<Many>(); });
    Strategy strategy(parallel::StrategyContext{.world = rank.world.get()}, model, {},
                      optim::make_optimizer(Sgd{.learning_rate = 1}));
    const MicroBatch micro{.count = 1, .fields = {{"tokens", at::ones({1})}}};
    strategy.step(
        {.micro = {micro}, .total = 1, .global_count = 1},
        [](const models::Value& output, const MicroBatch&) { return output.at(0).sum(); });
    expect_trained(net->all);
  });
}

}  // namespace
}  // namespace trireme::many_parameters_test
