// The pieces for a training loop: Ema, GradScaler, ScheduledRate, clip_grad_norm, Autocast.
#include <ATen/Functions.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/optim/sgd.h>

#include <limits>

#include "trireme/base/error.h"
#include "trireme/optim/pieces.h"
#include "trireme/tensor/autocast.h"

namespace trireme {
namespace {

at::Tensor parameter_with(std::initializer_list<float> gradient) {
  at::Tensor parameter =
      at::ones({static_cast<std::int64_t>(gradient.size())}).set_requires_grad(true);
  parameter.mutable_grad() = at::empty_like(parameter.detach());
  std::copy(gradient.begin(), gradient.end(), parameter.grad().data_ptr<float>());
  return parameter;
}

// w = 1, 2, 3 ... at decay 0.9. torch.optim.swa_utils.AveragedModel, started at w = 0, holds 0.1,
// 0.29, 0.561 after the updates.
TEST(Ema, IsTorchsAverage) {
  torch::nn::Linear net(torch::nn::LinearOptions(1, 1).bias(false));
  const auto set = [&](double value) { net->weight.detach().fill_(value); };
  set(0);
  Ema ema(*net, 0.9);
  const double wanted[] = {0.1, 0.29, 0.561};
  for (int step = 0; step < 3; ++step) {
    set(step + 1);
    ema.update();
    {
      const Ema::Swap swap(ema);
      EXPECT_NEAR(net->weight.item<double>(), wanted[step], 1e-6);
    }
    EXPECT_EQ(net->weight.item<double>(), step + 1);
  }
  EXPECT_EQ(ema.updates(), 3);
  EXPECT_THROW(Ema(*net, 1.0), ConfigError);
  const Ema::Swap swap(ema);
  EXPECT_ANY_THROW(ema.update());
}

// A module's parameters() has a tied tensor once for each of its names.
TEST(Ema, ATiedTensorIsSwappedOnce) {
  struct Tied : torch::nn::Module {
    Tied() {
      first =
          register_module("first", torch::nn::Linear(torch::nn::LinearOptions(1, 1).bias(false)));
      register_module("second", first);
    }
    torch::nn::Linear first{nullptr};
  } net;
  net.first->weight.detach().fill_(0);
  Ema ema(net, 0.5);
  net.first->weight.detach().fill_(1);
  ema.update();
  for (int look = 0; look < 2; ++look) {
    {
      const Ema::Swap swap(ema);
      EXPECT_EQ(net.first->weight.item<double>(), 0.5);
    }
    EXPECT_EQ(net.first->weight.item<double>(), 1);
  }
}

TEST(Ema, TensorsThatShareMemoryGetTheirValuesBack) {
  struct Shared : torch::nn::Module {
    torch::nn::Linear first = register_module("first", torch::nn::Linear(2, 2));
    torch::nn::Linear second = register_module("second", torch::nn::Linear(2, 2));
  } net;
  net.second->weight.set_data(net.first->weight.detach());
  Ema ema(net, 0.5);
  net.first->weight.detach().add_(1);
  ema.update();
  const at::Tensor trained = net.first->weight.detach().clone();
  for (int time = 0; time < 2; ++time) {
    at::Tensor average;
    {
      const Ema::Swap swap(ema);
      average = net.second->weight.detach().clone();
      EXPECT_TRUE(at::allclose(average, trained - 0.5));
    }
    EXPECT_TRUE(at::equal(net.first->weight, trained)) << time;
  }
}

TEST(Ema, AveragesAWeightThatIsMoved) {
  torch::nn::Linear net(torch::nn::LinearOptions(1, 1).bias(false));
  net->weight.detach().fill_(0);
  Ema ema(*net, 0.5);
  net->weight.set_data(at::ones({1, 1}));
  ema.update();
  {
    const Ema::Swap swap(ema);
    EXPECT_EQ(net->weight.item<double>(), 0.5);
  }
  EXPECT_EQ(net->weight.item<double>(), 1);
  net->to(at::kDouble);
  ema.update();
  const Ema::Swap swap(ema);
  EXPECT_EQ(net->weight.item<double>(), 0.75);
  EXPECT_EQ(net->weight.scalar_type(), at::kDouble);
}

TEST(GradScaler, SkipsBacksOffAndGrows) {
  const float inf = std::numeric_limits<float>::infinity();
  at::Tensor parameter = parameter_with({8, 16});
  torch::optim::SGD sgd({parameter}, torch::optim::SGDOptions(1));
  GradScaler scaler({.initial_scale = 8, .growth_interval = 2});
  EXPECT_EQ(scaler.scale(at::full({}, 3)).item<float>(), 24);
  EXPECT_TRUE(scaler.step(sgd));
  EXPECT_EQ(parameter[0].item<float>(), 0);   // 1 - 8/8
  EXPECT_EQ(parameter[1].item<float>(), -1);  // 1 - 16/8
  scaler.update();
  parameter.grad().fill_(inf);
  EXPECT_FALSE(scaler.step(sgd));
  EXPECT_EQ(parameter[1].item<float>(), -1);
  scaler.update();
  EXPECT_EQ(scaler.current_scale(), 4);
  EXPECT_EQ(scaler.skipped(), 1);
  for (int step = 0; step < 2; ++step) {
    parameter.grad().zero_();
    EXPECT_TRUE(scaler.step(sgd));
    scaler.update();
  }
  EXPECT_EQ(scaler.current_scale(), 8);
  for (int time = 0; time < 8; ++time) {
    if (time > 3) scaler.unscale(sgd);
    scaler.update();
  }
  EXPECT_EQ(scaler.current_scale(), 8) << "grew without steps";
  scaler.unscale(sgd);
  EXPECT_THROW(scaler.unscale(sgd), ConfigError);
  EXPECT_THROW(GradScaler({.backoff = 2}), ConfigError);
}

TEST(GradScaler, KnowsEachOptimizersGradients) {
  at::Tensor first = parameter_with({8}), second = parameter_with({16});
  torch::optim::SGD one({first}, torch::optim::SGDOptions(1));
  torch::optim::SGD two({second}, torch::optim::SGDOptions(1));
  GradScaler scaler({.initial_scale = 4});
  scaler.unscale(one);
  scaler.unscale(two);
  EXPECT_THROW(scaler.unscale(one), ConfigError);
  EXPECT_TRUE(scaler.step(one));
  EXPECT_TRUE(scaler.step(two));
  EXPECT_EQ(first.item<float>(), -1);   // 1 - 8/4
  EXPECT_EQ(second.item<float>(), -3);  // 1 - 16/4
  scaler.update();
  EXPECT_EQ(scaler.current_scale(), 4);
  first.grad().fill_(8);
  second.grad().fill_(std::numeric_limits<float>::infinity());
  EXPECT_TRUE(scaler.step(one));
  EXPECT_FALSE(scaler.step(two));
  EXPECT_EQ(first.item<float>(), -3);
  EXPECT_EQ(second.item<float>(), -3);
  scaler.update();
  EXPECT_EQ(scaler.current_scale(), 2);
  EXPECT_EQ(scaler.skipped(), 1);
}

// As an embedding's, which has a row for each use of it.
TEST(GradScaler, TakesSparseGradients) {
  const at::Tensor rows = at::tensor({0, 2, 0}, at::kLong).view({1, 3});
  at::Tensor table = at::ones({3, 2}).set_requires_grad(true);
  const auto set_gradient = [&](float each) {
    table.mutable_grad() = at::sparse_coo_tensor(rows, at::full({3, 2}, each), {3, 2});
  };
  torch::optim::SGD sgd({table}, torch::optim::SGDOptions(1));
  GradScaler scaler({.initial_scale = 8});
  set_gradient(4);
  EXPECT_TRUE(scaler.step(sgd));
  for (const auto& [row, wanted] : {std::pair{0, 0.0f}, {1, 1.0f}, {2, 0.5f}})
    EXPECT_EQ(table[row][0].item<float>(), wanted);
  scaler.update();
  set_gradient(std::numeric_limits<float>::infinity());
  EXPECT_FALSE(scaler.step(sgd));
}

TEST(GradScaler, RefusesAStepThatTrainsTwiceOrNothing) {
  at::Tensor parameter = parameter_with({8});
  torch::optim::SGD sgd({parameter}, torch::optim::SGDOptions(1));
  GradScaler scaler({.initial_scale = 8});
  EXPECT_TRUE(scaler.step(sgd));
  EXPECT_THROW(scaler.step(sgd), ConfigError);
  EXPECT_EQ(parameter[0].item<float>(), 0);
  scaler.update();
  EXPECT_TRUE(scaler.step(sgd));
  scaler.update();
  parameter.mutable_grad().reset();
  EXPECT_THROW(scaler.step(sgd), ConfigError);
  EXPECT_EQ(scaler.current_scale(), 8);
}

TEST(ScheduledRate, RefusesAPeakOfZero) {
  torch::optim::SGD sgd({parameter_with({1})}, torch::optim::SGDOptions(0.5));
  EXPECT_THROW(ScheduledRate(sgd, {.peak = 0}), ConfigError);
  EXPECT_THROW(ScheduledRate(sgd, {.peak = -1}), ConfigError);
}

TEST(ScheduledRate, ScalesEveryGroup) {
  std::vector<torch::optim::OptimizerParamGroup> groups;
  groups.emplace_back(std::vector<at::Tensor>{parameter_with({1})},
                      std::make_unique<torch::optim::SGDOptions>(0.5));
  groups.emplace_back(std::vector<at::Tensor>{parameter_with({1})},
                      std::make_unique<torch::optim::SGDOptions>(0.25));
  torch::optim::SGD sgd(groups, torch::optim::SGDOptions(0.5));
  ScheduledRate rate(
      sgd, {.peak = 0.5, .final_rate = 0, .warmup = 1, .steps = 5, .decay = optim::Decay::Linear});
  const double wanted[] = {0.25, 0.5, 0.375, 0.25, 0.125, 0, 0};
  for (const double one : wanted) {
    EXPECT_DOUBLE_EQ(rate.rate(), one);
    EXPECT_DOUBLE_EQ(sgd.param_groups()[1].options().get_lr(), one / 2);
    rate.step();
  }
  rate.set(3);
  EXPECT_DOUBLE_EQ(rate.rate(), 0.25);
}

TEST(ClipGradNorm, IsTorchs) {
  for (const double limit : {0.5, 100.0}) {
    at::Tensor ours = at::randn({70, 100}).set_requires_grad(true), without = at::ones({3});
    ours.mutable_grad() = at::randn({70, 100});
    at::Tensor theirs = ours.detach().clone().set_requires_grad(true);
    theirs.mutable_grad() = ours.grad().clone();
    const double norm = clip_grad_norm({ours, without}, limit);
    EXPECT_NEAR(norm, torch::nn::utils::clip_grad_norm_({theirs}, limit), 1e-5 * norm);
    EXPECT_TRUE(at::allclose(ours.grad(), theirs.grad(), 1e-6, 1e-9)) << limit;
  }
}

TEST(ClipGradNorm, LeavesWhatIsNotFinite) {
  at::Tensor parameter = parameter_with({3, std::numeric_limits<float>::quiet_NaN()});
  EXPECT_TRUE(std::isnan(clip_grad_norm({parameter}, 1)));
  EXPECT_EQ(parameter.grad()[0].item<float>(), 3);
}

TEST(Autocast, CastsInsideOnlyAndNests) {
  const at::Tensor a = at::randn({4, 4}), b = at::randn({4, 4});
  {
    const Autocast outer;
    EXPECT_EQ(at::mm(a, b).scalar_type(), at::kBFloat16);
    {
      const Autocast inner(c10::DeviceType::CPU, c10::ScalarType::BFloat16, /*enabled=*/false);
      EXPECT_EQ(at::mm(a, b).scalar_type(), at::kFloat);
    }
    EXPECT_EQ(at::mm(a, b).scalar_type(), at::kBFloat16);
  }
  EXPECT_EQ(at::mm(a, b).scalar_type(), at::kFloat);
}

}  // namespace
}  // namespace trireme
