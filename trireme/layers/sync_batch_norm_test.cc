// SyncBatchNorm over several ranks equals torch's batch norm over all their samples in one process.
#include "trireme/layers/sync_batch_norm.h"

#include <ATen/Functions.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/batchnorm.h>

#include <cmath>

#include "trireme/base/error.h"
#include "trireme/tensor/random.h"
#include "trireme/testing/run_ranks.h"

namespace trireme {
namespace {

constexpr std::int64_t kChannels = 5;

at::Tensor values(const std::string& name, at::IntArrayRef sizes) {
  at::Tensor out = at::empty(sizes, at::TensorOptions(at::kDouble));
  tensor::fill_normal(out, 1, name, 0.5, 2);
  return out;
}

// Ranks have 2, 3, 4 ... samples of images; their losses are added.
TEST(SyncBatchNorm, IsBatchNormOverTheSamplesOfAllRanks) {
  for (int ranks : {1, 2, 3}) {
    const std::int64_t total = ranks * (ranks + 3) / 2;
    const at::Tensor x = values("x", {total, kChannels, 3, 2});
    const at::Tensor slope = values("slope", x.sizes());
    torch::nn::BatchNorm2d whole(kChannels);
    whole->to(at::kDouble);
    const at::Tensor all = x.clone().set_requires_grad(true);
    at::Tensor expected;
    for (int step = 0; step < 2; ++step) {
      expected = whole->forward(all);
      (expected * slope).sum().backward();
    }
    std::vector<at::Tensor> weight_gradients(static_cast<std::size_t>(ranks));
    testing::run_ranks(ranks, [&](testing::RankContext& rank) {
      SyncBatchNorm norm(*rank.world, kChannels);
      norm.to(at::kDouble);
      const std::int64_t first = rank.rank * (rank.rank + 3) / 2, count = rank.rank + 2;
      const at::Tensor own = x.narrow(0, first, count).clone().set_requires_grad(true);
      at::Tensor y;
      for (int step = 0; step < 2; ++step) {
        y = norm.forward(own);
        (y * slope.narrow(0, first, count)).sum().backward();
      }
      EXPECT_TRUE(at::allclose(y, expected.narrow(0, first, count), 1e-10, 1e-12));
      EXPECT_TRUE(at::allclose(own.grad(), all.grad().narrow(0, first, count), 1e-9, 1e-11));
      EXPECT_TRUE(at::allclose(norm.running_mean, whole->running_mean, 1e-10, 1e-12));
      EXPECT_TRUE(at::allclose(norm.running_var, whole->running_var, 1e-10, 1e-12));
      EXPECT_EQ(norm.num_batches_tracked.item<std::int64_t>(), 2);
      weight_gradients[static_cast<std::size_t>(rank.rank)] = norm.weight.grad();
      norm.eval();
      const at::Tensor still = at::batch_norm(own, whole->weight, whole->bias, whole->running_mean,
                                              whole->running_var, false, 0, 1e-5, false);
      EXPECT_TRUE(at::allclose(norm.forward(own), still, 1e-10, 1e-12));
    });
    at::Tensor sum = at::zeros_like(weight_gradients[0]);
    for (const at::Tensor& part : weight_gradients) sum = sum + part;
    EXPECT_TRUE(at::allclose(sum, whole->weight.grad(), 1e-9, 1e-11));
  }
}

TEST(SyncBatchNorm, TakesWiderInputsThanItsOwnTypeInTrainingAndEvaluation) {
  testing::run_ranks(1, [&](testing::RankContext& rank) {
    SyncBatchNorm norm(*rank.world, kChannels);
    const at::Tensor x = values("x", {3, kChannels});
    EXPECT_EQ(norm.forward(x).scalar_type(), at::kDouble);
    norm.eval();
    const at::Tensor y = norm.forward(x);
    EXPECT_EQ(y.scalar_type(), at::kDouble);
    EXPECT_TRUE(at::allclose(y.to(at::kFloat), norm.forward(x.to(at::kFloat)), 1e-4, 1e-5));
  });
}

// The step may be left out; NaN in the running statistics would stay.
TEST(SyncBatchNorm, DoesNotKeepTheStatisticsOfNan) {
  testing::run_ranks(2, [&](testing::RankContext& rank) {
    SyncBatchNorm norm(*rank.world, kChannels);
    norm.to(at::kDouble);
    const auto input = [&](const char* name) {
      return values(name + std::to_string(rank.rank), {3, kChannels});
    };
    norm.forward(input("a"));
    const at::Tensor mean = norm.running_mean.clone(), variance = norm.running_var.clone();
    at::Tensor broken = input("b");
    if (rank.rank == 1) broken.fill_(std::nan(""));
    EXPECT_TRUE(at::isnan(norm.forward(broken)).any().item<bool>());
    EXPECT_TRUE(at::equal(norm.running_mean, mean));
    EXPECT_TRUE(at::equal(norm.running_var, variance));
  });
}

// A mean of 64.25 would be 64 in bf16.
TEST(SyncBatchNorm, ComputesSixteenBitsInFp32) {
  testing::run_ranks(2, [](testing::RankContext& rank) {
    const at::Tensor values = at::arange(8 * kChannels, at::kFloat).remainder(2) / 2 + 64;
    for (const at::ScalarType type : {at::kBFloat16, at::kHalf}) {
      const at::Tensor x = values.view({8, kChannels}).to(type).requires_grad_(true);
      const at::Tensor wide = x.detach().to(at::kFloat).requires_grad_(true);
      SyncBatchNorm norm(*rank.world, kChannels), in_fp32(*rank.world, kChannels);
      const at::Tensor y = norm.forward(x), wanted = in_fp32.forward(wide);
      EXPECT_TRUE(at::equal(y, wanted.to(type)));
      EXPECT_TRUE(at::equal(norm.running_mean, in_fp32.running_mean));
      const at::Tensor slope = at::arange(8 * kChannels, at::kFloat).view({8, kChannels}).to(type);
      y.backward(slope);
      wanted.backward(slope.to(at::kFloat));
      EXPECT_TRUE(at::equal(x.grad(), wide.grad().to(type)));
    }
  });
}

TEST(SyncBatchNorm, HasTorchsNamesAndRefusesOtherShapes) {
  testing::run_ranks(1, [&](testing::RankContext& rank) {
    SyncBatchNorm norm(*rank.world, kChannels);
    const torch::nn::BatchNorm1d theirs(kChannels);
    for (const auto& item : theirs->named_parameters())
      EXPECT_EQ(norm.named_parameters()[item.key()].sizes(), item.value().sizes());
    for (const auto& item : theirs->named_buffers())
      EXPECT_EQ(norm.named_buffers()[item.key()].sizes(), item.value().sizes());
    EXPECT_THROW(norm.forward(at::ones({2, kChannels + 1})), ConfigError);
    EXPECT_THROW(norm.forward(at::ones({kChannels})), ConfigError);
    EXPECT_THROW(norm.forward(at::ones({0, kChannels})), ConfigError);
    EXPECT_THROW(norm.forward(at::ones({2, kChannels}, at::kLong)), ConfigError);
  });
}

}  // namespace
}  // namespace trireme
