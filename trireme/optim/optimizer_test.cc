#include "trireme/optim/optimizer.h"

#include <ATen/ops/randn.h>
#include <gtest/gtest.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>

#include <cmath>

#include "trireme/base/error.h"
#include "trireme/kernel/elementwise.h"
#include "trireme/tensor/convert.h"
#include "trireme/tensor/flat_math.h"

namespace trireme {
namespace {

// One parameter of `count` elements, updated by LibTorch's optimizer and, cut in two, by ours.
struct Pair {
  at::Tensor theirs, ours, gradient, compute;
  std::vector<optim::OwnedSlice> slices;
  std::vector<optim::ParameterInfo> infos;
  Pair(std::int64_t count, at::ScalarType type, bool decay = true) {
    infos = {{"w", {count}}};
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
  optimizer.attach(pair.slices, pair.infos);
  for (int step = 0; step < 20; ++step) {
    const at::Tensor gradient = at::randn_like(pair.ours);
    pair.theirs.mutable_grad() = gradient;
    pair.gradient.copy_(gradient * 4);  // the scale undoes it exactly
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
    const double dampening = nesterov ? 0 : 0.25;  // torch allows none with Nesterov
    torch::optim::SGD theirs({pair.theirs}, torch::optim::SGDOptions(0.05)
                                                .momentum(0.9)
                                                .dampening(dampening)
                                                .weight_decay(0.01)
                                                .nesterov(nesterov));
    auto ours = optim::make_optimizer(Sgd{.learning_rate = 0.05,
                                          .momentum = 0.9,
                                          .weight_decay = 0.01,
                                          .nesterov = nesterov,
                                          .dampening = dampening});
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
  pair.infos[0].shape = {50, 100};
  ours->attach(pair.slices, pair.infos);
  ours->apply(0.1, 1.0);
  const auto state = ours->state();
  ASSERT_EQ(state.size(), 4u);
  EXPECT_EQ(state[0].name, "w.exp_avg");
  EXPECT_EQ(state[3].name, "w.exp_avg_sq");
  EXPECT_EQ(state[3].begin, 4096);
  EXPECT_EQ(state[3].end, 5000);
  EXPECT_EQ(state[3].local.numel(), 904);
  EXPECT_EQ(state[0].shape, pair.infos[0].shape);
}

std::vector<OptimizerOptions> all_optimizers() {
  const std::vector<ParameterGroup> groups = {{.match = "w", .weight_decay = 0.2}};
  std::vector<OptimizerOptions> all;
  for (const std::string& name : optim::optimizer_names())
    all.push_back(optim::optimizer_of(
        name, {.learning_rate = 0.01, .weight_decay = 0.01, .momentum = 0.9, .groups = groups}));
  return all;
}

// Rows that end inside a chunk, are longer than a chunk, and are shorter than a vector register.
const std::vector<std::vector<std::int64_t>> kShapes = {
    {13, 1001}, {3, 9000}, {40, 30, 3, 3}, {2, 900, 5}, {1500, 3, 1, 1}, {11000}};

std::int64_t elements_of(const std::vector<std::int64_t>& shape) {
  std::int64_t count = 1;
  for (const std::int64_t size : shape) count *= size;
  return count;
}

// Three steps of equal gradients from equal weights, each by an optimizer of its own.
void expect_same_steps(const OptimizerOptions& options, Pair& pair, Pair& other) {
  auto one = optim::make_optimizer(options), two = optim::make_optimizer(options);
  other.ours.copy_(pair.ours);
  one->attach(pair.slices, pair.infos);
  two->attach(other.slices, other.infos);
  const at::Tensor before = pair.ours.clone();
  for (int step = 0; step < 3; ++step) {
    pair.gradient.copy_(at::randn_like(pair.ours));
    other.gradient.copy_(pair.gradient);
    one->apply(0.01, 0.5);
    two->apply(0.01, 0.5);
  }
  EXPECT_TRUE(at::equal(pair.ours, other.ours))
      << one->name() << " " << at::IntArrayRef(pair.infos[0].shape);
  EXPECT_TRUE(at::equal(pair.compute, other.compute)) << one->name();
  EXPECT_FALSE(at::equal(pair.ours, before)) << one->name();
  EXPECT_TRUE(pair.ours.isfinite().all().item<bool>()) << one->name();
}

void expect_no_bit_from_the_cut() {
  for (const OptimizerOptions& options : all_optimizers()) {
    for (const auto& shape : kShapes) {
      for (const auto type : {at::kFloat, at::kDouble}) {
        const std::int64_t count = elements_of(shape);
        Pair cut(count, type), whole(count, type);
        cut.infos[0].shape = whole.infos[0].shape = shape;
        whole.slices = {whole.slices[0]};
        whole.slices[0].end = count;
        expect_same_steps(options, cut, whole);
      }
    }
  }
}

TEST(Optimizer, NoBitDependsOnTheCut) {
  expect_no_bit_from_the_cut();
  const tensor::LibTorchOnCpu by_tensors;
  expect_no_bit_from_the_cut();
}

// In fp64, where the two differ in rounding only.
TEST(Optimizer, TensorsGiveTheKernelsSteps) {
  for (const OptimizerOptions& options : all_optimizers()) {
    for (const auto& shape : kShapes) {
      Pair pair(elements_of(shape), at::kDouble);
      pair.infos[0].shape = shape;
      const at::Tensor start = pair.ours.clone(), gradient = at::randn_like(start);
      const auto stepped = [&] {
        auto optimizer = optim::make_optimizer(options);
        optimizer->attach(pair.slices, pair.infos);
        pair.ours.copy_(start);
        for (int step = 1; step <= 3; ++step) {
          pair.gradient.copy_(gradient * step);
          optimizer->apply(0.01, 0.5);
        }
        return pair.ours.clone();
      };
      const at::Tensor wanted = stepped();
      const tensor::LibTorchOnCpu by_tensors;
      EXPECT_TRUE(at::allclose(stepped(), wanted, 1e-12, 1e-13))
          << optim::make_optimizer(options)->name() << " " << at::IntArrayRef(shape);
    }
  }
}

TEST(Optimizer, TheFirstMatchingGroupCounts) {
  for (const OptimizerOptions& base : all_optimizers()) {
    OptimizerOptions options = base;
    std::visit(
        [](auto& own) {
          own.weight_decay = 0.3;
          own.groups = {{.match = "x*", .rate_factor = 0}, {.match = "*", .weight_decay = 0.0}};
        },
        options);
    Pair frozen(5000, at::kFloat), decayless(5000, at::kFloat);
    for (optim::OwnedSlice& slice : frozen.slices) slice.name = "x.bias", slice.parameter = 1;
    std::vector<optim::OwnedSlice> slices = decayless.slices;
    slices.insert(slices.end(), frozen.slices.begin(), frozen.slices.end());
    auto optimizer = optim::make_optimizer(options);
    optimizer->attach(slices, std::vector<optim::ParameterInfo>{{"w", {5000}}, {"x.bias", {5000}}});
    const at::Tensor still = frozen.ours.clone(), before = decayless.ours.clone();
    decayless.gradient.slice(0, 0, 100).fill_(1);
    frozen.gradient.fill_(1);
    optimizer->apply(0.1, 1.0);
    EXPECT_TRUE(at::equal(frozen.ours, still)) << optimizer->name();
    // FTRL computes every weight from its sums, so a weight without gradient is rounded once.
    const double rounding = optimizer->name() == Ftrl::kName ? 2e-7 : 0;
    EXPECT_TRUE(at::allclose(decayless.ours.slice(0, 100), before.slice(0, 100), rounding, 0))
        << optimizer->name();
    EXPECT_FALSE(at::equal(decayless.ours, before)) << optimizer->name();
  }
}

// TensorFlow's formulas (training_ops.cc, FtrlCompute with learning_rate_power = -1/2) on weights
// that start at 0.
TEST(Optimizer, FtrlIsTensorFlowsFromZeroWeights) {
  constexpr double kRate = 0.3, kL1 = 1.5, kL2 = 0.25;
  Pair pair(100, at::kDouble);
  pair.ours.zero_();
  const auto optimizer =
      optim::make_optimizer(Ftrl{.learning_rate = kRate, .l1 = kL1, .weight_decay = 2 * kL2});
  optimizer->attach(pair.slices, pair.infos);
  std::vector<double> w(100, 0), accumulator(100, 0.1), linear(100, 0);
  int zeros = 0;
  for (int step = 0; step < 20; ++step) {
    for (std::int64_t i = 0; i < 100; ++i) {
      const auto at = static_cast<std::size_t>(i);
      const double g = std::sin(1.0 + 37.0 * step + 11.0 * static_cast<double>(i));
      pair.gradient.data_ptr<double>()[i] = g;
      const double next = accumulator[at] + g * g;
      linear[at] += g - (std::sqrt(next) - std::sqrt(accumulator[at])) / kRate * w[at];
      const double quadratic = std::sqrt(next) / kRate + 2 * kL2;
      const double sign = linear[at] > 0 ? 1 : -1;
      w[at] = std::abs(linear[at]) > kL1 ? (sign * kL1 - linear[at]) / quadratic : 0;
      accumulator[at] = next;
    }
    optimizer->apply(kRate, 1.0);
  }
  for (std::int64_t i = 0; i < 100; ++i) {
    const double wanted = w[static_cast<std::size_t>(i)];
    EXPECT_NEAR(pair.ours.data_ptr<double>()[i], wanted, 1e-12) << i;
    zeros += wanted == 0 ? 1 : 0;
  }
  EXPECT_GT(zeros, 0);
}

TEST(Optimizer, AGroupThatMatchesNothingIsRefused) {
  Pair pair(10, at::kFloat);
  auto optimizer = optim::make_optimizer(AdamW{.groups = {{.match = "*.bais"}}});
  try {
    optimizer->attach(pair.slices, pair.infos);
    FAIL() << "no error";
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find("*.bais"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("\"w\""), std::string::npos) << error.what();
  }
}

TEST(Optimizer, NumbersThatTorchRefusesAreRefused) {
  const std::vector<OptimizerOptions> wrong = {
      AdamW{.beta1 = 1},
      AdamW{.epsilon = -1e-8},
      AdamW{.learning_rate = std::nan("")},
      Lamb{.beta2 = 1},
      Lion{.beta1 = 1.5},
      Sgd{.momentum = -0.1},
      Sgd{.nesterov = true},
      Sgd{.momentum = 0.9, .nesterov = true, .dampening = 0.5},
      Adafactor{.clip = 0},
      Adagrad{.groups = {{.match = "w", .weight_decay = -1.0}}},
      Ftrl{.initial_accumulator = 0}};
  for (std::size_t i = 0; i < wrong.size(); ++i)
    EXPECT_THROW(optim::make_optimizer(wrong[i]), ConfigError) << i;
  EXPECT_NO_THROW(optim::make_optimizer(Lion{.beta1 = 1}));
  OptimizerKeys keys;
  keys.beta1 = 1;
  EXPECT_THROW(optim::optimizer_of("adamw", keys), ConfigError);
  EXPECT_NO_THROW(optim::optimizer_of("sgd", keys));
}

TEST(Optimizer, PatternsMatch) {
  EXPECT_TRUE(optim::matches("*.bias", "layer.0.up.bias"));
  EXPECT_FALSE(optim::matches("*.bias", "layer.0.bias.weight"));
  EXPECT_TRUE(optim::matches("layer.?.*", "layer.3.norm.weight"));
  EXPECT_FALSE(optim::matches("layer.?.*", "layer.13.norm.weight"));
  EXPECT_TRUE(optim::matches("*a*b*", "xxaxxabx"));
  EXPECT_TRUE(optim::matches("**", ""));
  EXPECT_FALSE(optim::matches("?", ""));
  EXPECT_FALSE(optim::matches("", "w"));
}

TEST(Optimizer, AdafactorKeepsRowsAndColumnsOnly) {
  Pair pair(5000, at::kFloat);
  pair.infos[0].shape = {50, 100};
  auto optimizer = optim::make_optimizer(Adafactor{});
  optimizer->attach(pair.slices, pair.infos);
  const auto state = optimizer->state();
  ASSERT_EQ(state.size(), 2u);
  EXPECT_EQ(state[0].name, "w.row_var");
  EXPECT_EQ(state[0].local.numel(), 50);
  EXPECT_EQ(state[1].name, "w.col_var");
  EXPECT_EQ(state[1].local.numel(), 100);
}

}  // namespace
}  // namespace trireme
