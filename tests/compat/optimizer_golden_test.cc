// Optimizers and schedules against PyTorch's own (golden/optimizers.safetensors, written by
// make_optimizer_golden.py): fp64, 50 steps within 1e-10. Parameters are cut into their chunks.
// TRIREME_FRESH_GOLDEN names another file, which the installed PyTorch has just written.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "trireme/base/error.h"
#include "trireme/format/safetensors.h"
#include "trireme/optim/optimizer.h"
#include "trireme/optim/schedule.h"
#include "trireme/tensor/convert.h"

namespace trireme::optimizer_golden_test {
namespace {

constexpr std::int64_t kSteps = 50, kRates = 60, kEvery = 5, kChunk = 4096;
const std::vector<optim::ParameterInfo> kParameters = {
    {"matrix", {10, 450}}, {"wide", {2, 4200}}, {"vector", {50}}, {"kernel", {6, 5, 3, 3}}};

const format::SafetensorsFile& golden() {
  const char* fresh = std::getenv("TRIREME_FRESH_GOLDEN");
  static const format::SafetensorsFile file(
      fresh != nullptr ? fresh : TRIREME_GOLDEN "/optimizers.safetensors");
  return file;
}

at::Tensor golden_tensor(const std::string& name) {
  const format::TensorView* view = golden().find(name);
  if (view == nullptr) throw ConfigError("the golden file has no " + name);
  Buffer buffer{.data = const_cast<std::byte*>(view->bytes.data()),
                .count = view->bytes.size() / size_of(view->dtype),
                .dtype = view->dtype};
  return tensor::view_of(buffer, view->shape).clone();
}

at::Tensor gradient_of(std::int64_t step, std::int64_t index) {
  const auto& shape = kParameters[static_cast<std::size_t>(index)].shape;
  at::Tensor values = at::empty(shape, at::kDouble);
  double* out = values.data_ptr<double>();
  for (std::int64_t i = 0; i < values.numel(); ++i) {
    const std::int64_t a = (i * 7919 + step * 104729 + index * 1299709 + i * i * 31) % 2003;
    out[i] = static_cast<double>(a - 1001) / 1000;
  }
  return values;
}

void expect_pytorchs(const std::string& name, const OptimizerOptions& options) {
  std::vector<at::Tensor> weights, gradients;
  std::vector<optim::OwnedSlice> slices;
  for (std::uint32_t p = 0; p < kParameters.size(); ++p) {
    weights.push_back(gradient_of(1000, p) * 0.1);
    gradients.push_back(at::empty_like(weights.back()));
    for (std::int64_t begin = 0; begin < weights[p].numel(); begin += kChunk)
      slices.push_back({.parameter = p,
                        .name = kParameters[p].name,
                        .begin = begin,
                        .end = std::min(begin + kChunk, weights[p].numel()),
                        .master_dtype = DType::F64,
                        .weight = weights[p].data_ptr<double>() + begin,
                        .gradient = gradients[p].data_ptr<double>() + begin});
  }
  const auto optimizer = optim::make_optimizer(options);
  optimizer->attach(slices, kParameters);
  for (std::int64_t step = 0; step < kSteps; ++step) {
    for (std::size_t p = 0; p < weights.size(); ++p)
      gradients[p].copy_(gradient_of(step, static_cast<std::int64_t>(p)) * 8);
    optimizer->apply(optimizer->base_learning_rate(), 0.125);
  }
  for (std::size_t p = 0; p < weights.size(); ++p) {
    const at::Tensor ours = weights[p].flatten().slice(0, 0, weights[p].numel(), kEvery);
    const at::Tensor theirs = golden_tensor(name + "/" + kParameters[p].name);
    EXPECT_LT(((ours - theirs).norm() / theirs.norm()).item<double>(), 1e-10)
        << name << " " << kParameters[p].name;
  }
}

TEST(OptimizerGolden, SgdIsPyTorchs) {
  expect_pytorchs("sgd", Sgd{.learning_rate = 0.01});
  expect_pytorchs(
      "sgd_momentum",
      Sgd{.learning_rate = 0.01, .momentum = 0.9, .weight_decay = 0.1, .dampening = 0.25});
  expect_pytorchs(
      "sgd_nesterov",
      Sgd{.learning_rate = 0.01, .momentum = 0.9, .weight_decay = 0.1, .nesterov = true});
}
TEST(OptimizerGolden, AdamWIsPyTorchs) {
  expect_pytorchs("adamw",
                  AdamW{.learning_rate = 0.01, .beta1 = 0.9, .beta2 = 0.99, .weight_decay = 0.1});
}
TEST(OptimizerGolden, LambIsThePapers) {
  expect_pytorchs("lamb", Lamb{.learning_rate = 0.01, .weight_decay = 0.1});
}
TEST(OptimizerGolden, AdafactorIsPyTorchs) {
  expect_pytorchs("adafactor", Adafactor{.learning_rate = 0.02, .weight_decay = 0.1});
}
TEST(OptimizerGolden, LionIsThePapers) {
  expect_pytorchs("lion", Lion{.learning_rate = 0.003, .weight_decay = 0.1});
}
TEST(OptimizerGolden, AdagradIsPyTorchs) {
  expect_pytorchs("adagrad", Adagrad{.learning_rate = 0.05, .weight_decay = 0.1});
}
TEST(OptimizerGolden, FtrlIsTensorFlows) {
  expect_pytorchs("ftrl", Ftrl{.learning_rate = 0.05, .l1 = 0.2, .weight_decay = 0.1});
  const at::Tensor weights = golden_tensor("ftrl/matrix");
  EXPECT_GT((weights == 0).sum().item<std::int64_t>(), 0);
}

TEST(ScheduleGolden, RatesArePyTorchs) {
  const std::vector<std::pair<std::string, optim::Schedule>> all = {
      {"constant", {.peak = 0.5, .warmup = 5, .decay = optim::Decay::Constant}},
      {"linear",
       {.peak = 0.5, .final_rate = 0.05, .warmup = 5, .steps = 50, .decay = optim::Decay::Linear}},
      {"cosine", {.peak = 0.5, .final_rate = 0.05, .steps = 60}},
      {"polynomial",
       {.peak = 0.5, .final_rate = 0, .steps = 50, .decay = optim::Decay::Polynomial, .power = 2}},
      {"one_cycle",
       {.peak = 0.5,
        .final_rate = 0.5 / 25 / 1e3,
        .steps = kRates + 1,
        .decay = optim::Decay::OneCycle}},
      {"step", {.peak = 0.5, .warmup = 5, .decay = optim::Decay::Step, .every = 10, .factor = 0.5}},
      {"wsd",
       {.peak = 0.5,
        .final_rate = 0.05,
        .steps = 50,
        .decay = optim::Decay::Stable,
        .decay_steps = 20}}};
  for (const auto& [name, schedule] : all) {
    optim::check(schedule);
    const at::Tensor wanted = golden_tensor("schedule/" + name);
    ASSERT_EQ(wanted.numel(), kRates);
    for (std::int64_t step = 0; step < kRates; ++step)
      EXPECT_NEAR(optim::learning_rate(schedule, step), wanted[step].item<double>(), 1e-12)
          << name << " step " << step;
  }
}

}  // namespace
}  // namespace trireme::optimizer_golden_test
