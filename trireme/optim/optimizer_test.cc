#include "trireme/optim/optimizer.h"

#include <ATen/ops/randn.h>
#include <gtest/gtest.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>

#include "trireme/kernel/elementwise.h"
#include "trireme/tensor/convert.h"

namespace trireme {
namespace {

// One parameter of `count` elements, updated by LibTorch's optimizer and, cut in two, by ours.
struct Pair {
  at::Tensor theirs, ours, gradient, compute;
  std::vector<optim::OwnedSlice> slices;
  Pair(std::int64_t count, at::ScalarType type, bool decay = true) {
    theirs = at::randn({count}, type).set_requires_grad(true);
    ours = theirs.detach().clone();
    gradient = at::zeros({count}, type);
    compute = at::zeros({count}, at::kBFloat16);
    const auto bytes = static_cast<std::int64_t>(ours.element_size());
    const auto at_byte = [](const at::Tensor& tensor, std::int64_t offset) {
      return static_cast<void*>(static_cast<char*>(tensor.data_ptr()) + offset);
    };
    for (std::int64_t begin = 0; begin < count; begin += 4096) {
      slices.push_back({.name = "w",
                        .begin = begin,
                        .end = std::min(begin + 4096, count),
                        .master_dtype = tensor::dtype_of(type),
                        .weight = at_byte(ours, begin * bytes),
                        .gradient = at_byte(gradient, begin * bytes),
                        .compute = type == at::kFloat ? at_byte(compute, 2 * begin) : nullptr,
                        .decay = decay});
    }
  }
};

template <class Theirs>
void expect_same_path(Pair& pair, optim::Optimizer& optimizer, Theirs& theirs, double tolerance) {
  optimizer.attach(pair.slices);
  for (int step = 0; step < 20; ++step) {
    const at::Tensor gradient = at::randn_like(pair.ours);
    pair.theirs.mutable_grad() = gradient;
    pair.gradient.copy_(gradient * 4);  // undone by the scale, exactly
    theirs.step();
    optimizer.apply(optimizer.base_learning_rate(), 0.25);
  }
  EXPECT_EQ(optimizer.step_count(), 20);
  const double difference = (pair.theirs.detach() - pair.ours).abs().max().item<double>();
  EXPECT_LE(difference, tolerance);
}

TEST(Optimizer, AdamWIsTorchs) {
  const AdamW options{.learning_rate = 0.01, .beta1 = 0.9, .beta2 = 0.99, .weight_decay = 0.1};
  for (auto [type, tolerance] : {std::pair{at::kFloat, 2e-6}, std::pair{at::kDouble, 1e-14}}) {
    Pair pair(5000, type);
    torch::optim::AdamW theirs(
        {pair.theirs}, torch::optim::AdamWOptions(0.01).betas({0.9, 0.99}).weight_decay(0.1));
    auto ours = optim::make_optimizer(options);
    expect_same_path(pair, *ours, theirs, tolerance);
    if (type == at::kFloat) {
      EXPECT_TRUE(at::equal(pair.compute, pair.ours.to(at::kBFloat16)));
    }
  }
}

TEST(Optimizer, SgdIsTorchs) {
  for (bool nesterov : {false, true}) {
    Pair pair(5000, at::kFloat);
    torch::optim::SGD theirs(
        {pair.theirs},
        torch::optim::SGDOptions(0.05).momentum(0.9).weight_decay(0.01).nesterov(nesterov));
    auto ours = optim::make_optimizer(
        Sgd{.learning_rate = 0.05, .momentum = 0.9, .weight_decay = 0.01, .nesterov = nesterov});
    expect_same_path(pair, *ours, theirs, 2e-5);
  }
}

TEST(Optimizer, UndecayedGroupIgnoresWeightDecay) {
  Pair pair(100, at::kDouble, /*decay=*/false);
  torch::optim::AdamW theirs({pair.theirs}, torch::optim::AdamWOptions(0.01).weight_decay(0));
  auto ours = optim::make_optimizer(AdamW{.learning_rate = 0.01, .weight_decay = 0.5});
  expect_same_path(pair, *ours, theirs, 1e-14);
}

TEST(Optimizer, StateIsNamedAndCutLikeTheSlices) {
  Pair pair(5000, at::kFloat);
  auto ours = optim::make_optimizer(AdamW{});
  ours->attach(pair.slices);
  ours->apply(0.1, 1.0);
  const std::vector<std::vector<std::int64_t>> shapes = {{50, 100}};
  const auto state = ours->state(shapes);
  ASSERT_EQ(state.size(), 4u);
  EXPECT_EQ(state[0].name, "w.exp_avg");
  EXPECT_EQ(state[3].name, "w.exp_avg_sq");
  EXPECT_EQ(state[3].begin, 4096);
  EXPECT_EQ(state[3].end, 5000);
  EXPECT_EQ(state[3].local.numel(), 904);
  EXPECT_EQ(state[0].shape, shapes[0]);
  EXPECT_EQ(ours->state_bytes_per_element(), 8);
}

TEST(Optimizer, NormChunksDoNotDependOnTheCut) {
  Pair pair(10000, at::kFloat);
  pair.gradient.copy_(at::randn({10000}));
  std::vector<double> cut, whole;
  for (const auto& slice : pair.slices) optim::chunk_squares(slice, cut);
  optim::OwnedSlice all = pair.slices[0];
  all.end = 10000;
  optim::chunk_squares(all, whole);
  EXPECT_EQ(cut, whole);
  EXPECT_EQ(whole.size(), 3u);
  double sum = 0;
  for (double part : whole) sum += part;
  EXPECT_NEAR(sum, pair.gradient.to(at::kDouble).square().sum().item<double>(), 1e-9 * sum);
}

}  // namespace
}  // namespace trireme
