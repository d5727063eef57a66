// The functions by the GPU's kernels, beside the CPU's: sizes at which these take other ways.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/custom_function.h>

#include <array>
#include <cmath>
#include <optional>

#include "trireme/tensor/devices/gpu_kernels_test.h"
#include "trireme/tensor/functions/functions.h"

namespace trireme::tensor::gpu_functions_test {
namespace {

using Tensors = std::vector<at::Tensor>;

at::Tensor leaf(const at::Tensor& value, at::ScalarType type) {
  return value.to(type, false, true).detach().set_requires_grad(true);
}

double relative(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor wide = b.to(at::kDouble);
  return ((a.to(at::kDouble) - wide).norm() / (wide.norm() + 1e-30)).item<double>();
}

// Compares the results of compute() on the CPU and by the GPU's kernels.
template <class Compute>
void expect_as_on_the_cpu(Compute compute, double tolerance, const std::string& what) {
  const Tensors wanted = compute();
  const KernelsOnCpu as_gpus;
  const Tensors got = compute();
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    ASSERT_EQ(got[i].scalar_type(), wanted[i].scalar_type()) << what;
    EXPECT_LT(relative(got[i], wanted[i]), tolerance) << what << ", result " << i;
  }
}

// More rows than one sum of the weight's gradient takes; widths with and without a multiple of 8, and
// one that a warp takes in several turns.
TEST(GpuFunctions, NormsOfManyRows) {
  for (const std::int64_t width : {5, 40, 264, 700}) {
    const at::Tensor x = at::randn({71, width}) * 3 + 1, weight = at::randn({width}),
                     bias = at::randn({width}), update = at::randn({71, width}),
                     slope = at::randn({71, width});
    for (const auto& [type, tolerance] :
         {std::pair{at::kFloat, 2e-6}, {at::kBFloat16, 1e-3}, {at::kHalf, 2e-4}}) {
      const auto norm = [&, type = type] {
        const Tensors in = {leaf(x, at::kFloat), leaf(weight, at::kFloat), leaf(bias, at::kFloat)};
        const at::Tensor y = layer_norm(in[0], in[1], in[2], 1e-5, type);
        (y * slope).sum().backward();
        return Tensors{y.detach(), in[0].grad(), in[1].grad(), in[2].grad()};
      };
      const auto add_norm = [&, type = type] {
        const Tensors in = {leaf(x, at::kFloat), leaf(update, type), leaf(weight, at::kFloat)};
        const auto [h, y] = add_layer_norm(in[0], in[1], in[2], {}, 1e-5);
        (h * slope + y.to(at::kFloat) * slope.flip(0)).sum().backward();
        return Tensors{h.detach(), y.detach(), in[0].grad(), in[1].grad(), in[2].grad()};
      };
      const std::string what = std::to_string(width) + " " + c10::toString(type);
      expect_as_on_the_cpu(norm, tolerance, "norm of " + what);
      expect_as_on_the_cpu(add_norm, tolerance, "addition and norm of " + what);
    }
  }
}

// Not a multiple of 16 bytes from the beginning of its memory.
TEST(GpuFunctions, NormsOfUnalignedRows) {
  const at::Tensor all = at::randn({1 + 9 * 16}), weight = at::randn({16});
  const auto norm = [&] {
    return Tensors{layer_norm(all.narrow(0, 1, 9 * 16).view({9, 16}), weight, {}, 1e-5, at::kHalf)};
  };
  expect_as_on_the_cpu(norm, 2e-4, "norm");
}

TEST(GpuFunctions, LossesOfManyColumns) {
  for (const std::int64_t width : {1, 7, 64, 263, 3000}) {
    const at::Tensor logits = at::randn({37, width}) * 4;
    const at::Tensor targets = at::randint(-1, width, {37}, at::kLong);
    for (const auto& [type, tolerance] :
         {std::pair{at::kFloat, 2e-6}, {at::kBFloat16, 1e-3}, {at::kHalf, 2e-4}}) {
      const auto loss = [&, type = type] {
        const at::Tensor in = leaf(logits, type);
        const at::Tensor sum = cross_entropy_sum(in, targets);
        (sum * 0.25).backward();
        return Tensors{sum.detach(), in.grad()};
      };
      expect_as_on_the_cpu(loss, tolerance, std::to_string(width) + " " + c10::toString(type));
    }
  }
}

TEST(GpuFunctions, LogitsThatAreNotAllFinite) {
  constexpr float kInfinity = INFINITY;
  at::Tensor logits = at::randn({4, 40});
  logits[0].fill_(-kInfinity)[3] = 2;
  logits[1].narrow(0, 0, 20).fill_(-kInfinity);
  const at::Tensor targets = at::tensor({3, 25, 0, 1}, at::kLong);
  const auto losses = [&] {
    const at::Tensor in = leaf(logits, at::kFloat);
    const at::Tensor sum = cross_entropy_sum(in, targets);
    sum.backward();
    return Tensors{sum.detach(), in.grad()};
  };
  expect_as_on_the_cpu(losses, 2e-6, "minus infinity");
  const KernelsOnCpu as_gpus;
  for (const float bad : {kInfinity, static_cast<float>(NAN)}) {
    logits[2][5] = bad;
    EXPECT_TRUE(losses()[0].isnan().item<bool>()) << bad;
  }
}

// The CPU refuses it before it computes; a GPU would have to be waited for.
TEST(GpuFunctions, ATargetOutsideTheVocabularyGivesNoNumber) {
  const KernelsOnCpu as_gpus;
  const at::Tensor in = at::randn({3, 40}).set_requires_grad(true);
  const at::Tensor sum = cross_entropy_sum(in, at::tensor({3, 40, -1}, at::kLong));
  sum.backward();
  EXPECT_TRUE(sum.isnan().item<bool>());
  EXPECT_TRUE(in.grad()[1].isnan().all().item<bool>());
  EXPECT_FALSE(in.grad()[0].isnan().any().item<bool>());
  EXPECT_TRUE(at::equal(in.grad()[2], at::zeros({40})));
}

// Returns its input as it is: for autograd a view of it, whose base does not know the factor.
class TwiceTheGradient : public torch::autograd::Function<TwiceTheGradient> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext*, const at::Tensor& x) { return x; }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext*,
                                                 torch::autograd::variable_list gradients) {
    return {gradients[0] * 2};
  }
};

// Whatever part of the filled-up logits a loss takes, the gradients are those of that part.
TEST(GpuFunctions, LossesOfPartsOfLogits) {
  const at::Tensor x = at::randn({6, 24}), weight = at::randn({41, 24});
  using Part = at::Tensor (*)(const at::Tensor&);
  const std::array<Part, 7> parts = {
      [](const at::Tensor& logits) { return logits; },
      [](const at::Tensor& logits) {
        return logits.view({2, 3, 41});
      },
      [](const at::Tensor& logits) { return logits.narrow(0, 2, 3); },
      [](const at::Tensor& logits) { return logits.narrow(1, 0, 30); },
      [](const at::Tensor& logits) { return logits.narrow(1, 3, 30); },
      [](const at::Tensor& logits) { return logits.flip(0).t().contiguous().t(); },
      [](const at::Tensor& logits) -> at::Tensor { return TwiceTheGradient::apply(logits); }};
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const auto gradients = [&] {
      const Tensors in = {leaf(x, at::kFloat), leaf(weight, at::kFloat)};
      const at::Tensor part = parts[i](logits(in[0], in[1], {}));
      const at::Tensor targets = at::arange(part.numel() / part.size(-1), at::kLong)
                                     .view(part.sizes().slice(0, part.dim() - 1));
      const at::Tensor sum = cross_entropy_sum(part, targets);
      sum.backward();
      return Tensors{sum.detach(), in[0].grad(), in[1].grad()};
    };
    expect_as_on_the_cpu(gradients, 2e-6, "part " + std::to_string(i));
  }
}

// The loss hangs on the filled-up product itself, not on its first columns.
TEST(GpuFunctions, TheGradientOfFilledUpLogitsIsNotCopied) {
  const KernelsOnCpu as_gpus;
  const at::Tensor x = at::randn({2, 3, 24}), weight = leaf(at::randn({41, 24}), at::kFloat);
  const at::Tensor sum =
      cross_entropy_sum(logits(x, weight, {}), at::zeros({2, 3}, at::TensorOptions(at::kLong)));
  const std::string before = sum.grad_fn()->next_edge(0).function->name();
  EXPECT_NE(before.find("MmBackward"), std::string::npos) << before;
}

}  // namespace
}  // namespace trireme::tensor::gpu_functions_test
