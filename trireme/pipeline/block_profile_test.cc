#include "trireme/pipeline/block_profile.h"

#include <ATen/Functions.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>

#include "trireme/base/waiter/real_waiter.h"
#include "trireme/models/module_block.h"
#include "trireme/placement/pipeline_plan.h"

namespace trireme::block_profile_test {
namespace {

// A block whose forward pass takes `times` products.
std::function<at::Tensor(at::Tensor)> slow(int times) {
  return [times](at::Tensor x) {
    const at::Tensor one = at::eye(x.size(-1));
    for (int i = 0; i < times; ++i) x = at::matmul(x, one);
    return x;
  };
}

TEST(BlockProfile, MeasuresEveryBlockAndTheCutBalancesThem) {
  models::Blocks model;
  model.add("wide", [] { return torch::nn::Linear(64, 256); });
  for (const auto& [name, times] : {std::pair{"heavy", 40}, {"light", 1}, {"small", 1}})
    model.add(name, [times = times] { return slow(times); });
  model.add_block({.name = "end",
                   .make =
                       [] {
                         return models::as_block(
                             [](at::Tensor a, at::Tensor b) { return a + b.narrow(-1, 0, 1); });
                       },
                   .reads = {"small", "tokens"}});
  const MicroBatch micro{.count = 1, .fields = {{"tokens", at::ones({128, 64})}}};
  auto costs = parallel::profile_blocks(model, micro, 1, *RealWaiter::make());
  ASSERT_EQ(costs.size(), 5u);
  EXPECT_EQ(costs[0].name, "wide");
  EXPECT_EQ(costs[0].weight_bytes, (64 * 256 + 256) * 4);
  EXPECT_EQ(costs[0].output_bytes, 128 * 256 * 4);
  // Measured times depend on the machine, so the cut is tested with fixed ones.
  for (plan::BlockCost& cost : costs) {
    EXPECT_GT(cost.seconds, 0) << cost.name;
    cost.seconds = cost.name == "heavy" ? 40 : 1;
  }
  const plan::Partition cut = plan::partition_chain(costs, {.stages = 3});
  EXPECT_EQ(cut.stages[1].first, 1);  // the heavy block has a stage of its own
  EXPECT_EQ(cut.stages[1].end, 2);
}

TEST(BlockProfile, AnEvenCutIsEven) {
  EXPECT_EQ(parallel::even_cut(8, 3), (std::vector<std::size_t>{0, 2, 5, 8}));
  EXPECT_EQ(parallel::even_cut(3, 1), (std::vector<std::size_t>{0, 3}));
}

}  // namespace
}  // namespace trireme::block_profile_test
