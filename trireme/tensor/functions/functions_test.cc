// Each autograd function against plain ATen: values and gradients in fp64, then fp32 and bf16
// against fp64; equal bits on a second call; gradients against finite differences.
#include "trireme/tensor/functions/functions.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <optional>

#include "trireme/base/check.h"
#include "trireme/base/error.h"
#include "trireme/tensor/determinism.h"
#include "trireme/tensor/devices/gpu_kernels_test.h"
#include "trireme/tensor/flat_math.h"
#include "trireme/tensor/functions/deferred.h"
#include "trireme/tensor/products/gemm.h"

namespace trireme::tensor {
namespace {

using Tensors = std::vector<at::Tensor>;
using Function = std::function<at::Tensor(const Tensors&)>;

// Leaves of `values` in `type`, except integer ones. With `wide_vectors`, 1-dim leaves (weights of
// norms) stay fp32 under bf16.
Tensors leaves(const Tensors& values, at::ScalarType type, bool wide_vectors = false) {
  Tensors result;
  for (const at::Tensor& value : values) {
    if (value.scalar_type() == at::kLong) {
      result.push_back(value);
      continue;
    }
    const bool wide = (type == at::kBFloat16 || type == at::kHalf) && wide_vectors;
    result.push_back(
        value.to(wide ? at::kFloat : type, false, true).detach().set_requires_grad(true));
  }
  return result;
}

// The output and the gradients of sum(output * weights) with fixed weights.
Tensors run(const Function& function, const Tensors& inputs) {
  const at::Tensor out = function(inputs);
  const at::Tensor weights =
      at::arange(out.numel(), at::kDouble).mul(0.37).sin().view(out.sizes()).to(out.scalar_type());
  (out * weights).sum().backward();
  Tensors results = {out.detach()};
  for (const at::Tensor& input : inputs) {
    if (input.requires_grad()) results.push_back(input.grad());
  }
  return results;
}

double relative(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor wide = b.to(at::kDouble);
  return ((a.to(at::kDouble) - wide).norm() / (wide.norm() + 1e-30)).item<double>();
}

void expect_like(const Function& ours, const Function& plain, const Tensors& values,
                 bool wide_vectors = false) {
  const Tensors wanted = run(plain, leaves(values, at::kDouble));
  const auto compare = [&](at::ScalarType type, double tolerance) {
    const Tensors got = run(ours, leaves(values, type, wide_vectors));
    const Tensors again = run(ours, leaves(values, type, wide_vectors));
    ASSERT_EQ(got.size(), wanted.size());
    for (std::size_t i = 0; i < got.size(); ++i) {
      EXPECT_LT(relative(got[i], wanted[i]), tolerance) << c10::toString(type) << " result " << i;
      EXPECT_TRUE(at::equal(got[i], again[i])) << "not deterministic: result " << i;
    }
  };
  compare(at::kDouble, 1e-13);
  compare(at::kFloat, 2e-6);
  compare(at::kBFloat16, 2e-2);
  compare(at::kHalf, 2.5e-3);
}

// d loss / d input against central differences, fp64.
void expect_gradient(const Function& function, const Tensors& values) {
  const Tensors inputs = leaves(values, at::kDouble);
  const Tensors gradients = run(function, inputs);
  const auto loss = [&](const Tensors& at_inputs) {
    const at::Tensor out = function(at_inputs).detach();
    return (out * at::arange(out.numel(), at::kDouble).mul(0.37).sin().view(out.sizes()))
        .sum()
        .item<double>();
  };
  std::size_t slot = 1;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i].requires_grad()) continue;
    for (std::int64_t element = 0; element < inputs[i].numel(); element += 3) {
      Tensors moved = leaves(values, at::kDouble);
      double* data = moved[i].data_ptr<double>();
      const double kept = data[element], step = 1e-5;
      data[element] = kept + step;
      const double up = loss(moved);
      data[element] = kept - step;
      const double down = loss(moved);
      EXPECT_NEAR(gradients[slot].flatten()[element].item<double>(), (up - down) / (2 * step), 1e-7)
          << "input " << i << " element " << element;
    }
    ++slot;
  }
}

class Functions : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    set_up_process({.kernel_threads = 1});
    at::manual_seed(5);
  }
};

// The same functions, however a device computes them.
enum class Way { Kernels, LibTorch, GpuKernels };

class EachWay : public Functions, public ::testing::WithParamInterface<Way> {
 protected:
  void SetUp() override {
    if (GetParam() == Way::LibTorch) libtorch_.emplace();
    if (GetParam() == Way::GpuKernels) gpu_.emplace();
  }

 private:
  std::optional<LibTorchOnCpu> libtorch_;
  std::optional<KernelsOnCpu> gpu_;
};
std::string name_of_way(const ::testing::TestParamInfo<Way>& info) {
  constexpr const char* kNames[] = {"Kernels", "LibTorch", "GpuKernels"};
  return kNames[static_cast<int>(info.param)];
}
INSTANTIATE_TEST_SUITE_P(All, EachWay,
                         ::testing::Values(Way::Kernels, Way::LibTorch, Way::GpuKernels),
                         name_of_way);

TEST_P(EachWay, Linear) {
  const Tensors values = {at::randn({2, 5, 24}), at::randn({17, 24}), at::randn({17})};
  const Function ours = [](const Tensors& in) { return linear(in[0], in[1], in[2]); };
  expect_like(
      ours, [](const Tensors& in) { return at::linear(in[0], in[1], in[2]); }, values);
  expect_gradient(ours, {at::randn({3, 4}), at::randn({5, 4}), at::randn({5})});
  const Function no_bias = [](const Tensors& in) {
    return tensor::linear(in[0], in[1], at::Tensor());
  };
  expect_like(no_bias, [](const Tensors& in) { return at::linear(in[0], in[1]); },
              {values[0], values[1]});
}

TEST_P(EachWay, LinearGelu) {
  const Tensors values = {at::randn({2, 5, 24}), at::randn({17, 24}), at::randn({17})};
  const Function ours = [](const Tensors& in) { return linear_gelu(in[0], in[1], in[2]); };
  expect_like(
      ours, [](const Tensors& in) { return at::gelu(at::linear(in[0], in[1], in[2]), "tanh"); },
      values);
  expect_gradient(ours, {at::randn({3, 4}), at::randn({5, 4}), at::randn({5})});
}

TEST_P(EachWay, Gated) {
  for (const auto gate : {kernel::Gate::Silu, kernel::Gate::Gelu}) {
    const Function ours = [gate](const Tensors& in) { return gated(gate, in[0]); };
    const Function plain = [gate](const Tensors& in) {
      const auto halves = in[0].chunk(2, -1);
      return (gate == kernel::Gate::Silu ? at::silu(halves[0]) : at::gelu(halves[0], "tanh")) *
             halves[1];
    };
    for (const std::int64_t width : {2, 34, 128})
      expect_like(ours, plain, {at::randn({3, 5, width}) * 3});
    expect_gradient(ours, {at::randn({3, 10})});
    const at::Tensor extreme = at::tensor({-1e30f, -100.0f, 100.0f, 1e30f, 1.0f, 1.0f, 1.0f, 1.0f});
    EXPECT_TRUE(at::allclose(ours({extreme}), at::tensor({0.0f, 0.0f, 100.0f, 1e30f}), 1e-6, 1e-7));
  }
  EXPECT_THROW(gated(kernel::Gate::Silu, at::randn({2, 3})), CheckFailure);
}

TEST_P(EachWay, GeluOverItsWholeRange) {
  const Function ours = [](const Tensors& in) { return gelu_tanh(in[0]); };
  const Function plain = [](const Tensors& in) { return at::gelu(in[0], "tanh"); };
  expect_like(ours, plain, {at::linspace(-12, 12, 1001, at::kDouble)});
  const at::Tensor extreme = at::tensor({-1e30f, -50.0f, 50.0f, 1e30f, NAN, INFINITY});
  const at::Tensor got = ours({extreme});
  EXPECT_TRUE(
      at::allclose(got, at::tensor({0.0f, 0.0f, 50.0f, 1e30f, NAN, INFINITY}), 1e-6, 1e-7, true))
      << got;
}

TEST_P(EachWay, LayerNorm) {
  for (std::int64_t width : {3, 16, 37, 96}) {
    const Tensors values = {at::randn({4, 3, width}), at::randn({width}), at::randn({width})};
    const auto typed = [](at::ScalarType type) -> Function {
      return [type](const Tensors& in) { return layer_norm(in[0], in[1], in[2], 1e-5, type); };
    };
    const Function plain = [width](const Tensors& in) {
      return at::layer_norm(in[0], {width}, in[1], in[2], 1e-5);
    };
    const Tensors wanted = run(plain, leaves(values, at::kDouble));
    const double single = GetParam() == Way::LibTorch ? 5e-6 : 2e-6;  // theirs rounds more
    for (auto [type, tolerance] : {std::pair{at::kDouble, 1e-13},
                                   {at::kFloat, single},
                                   {at::kBFloat16, 1e-2},
                                   {at::kHalf, 2.5e-3}}) {
      const Tensors got = run(typed(type), leaves(values, type, true));
      for (std::size_t i = 0; i < got.size(); ++i) {
        EXPECT_LT(relative(got[i], wanted[i]), tolerance)
            << width << " " << c10::toString(type) << i;
      }
    }
  }
  expect_gradient([](const Tensors& in) { return layer_norm(in[0], in[1], {}, 1e-5, at::kDouble); },
                  {at::randn({3, 7}), at::randn({7})});
}

TEST_P(EachWay, AddLayerNormKeepsBothPaths) {
  const Tensors values = {at::randn({4, 3, 20}), at::randn({4, 3, 20}), at::randn({20})};
  const Function ours = [](const Tensors& in) {
    const auto [h, y] = add_layer_norm(in[0], in[1], in[2], {}, 1e-5);
    return h * 0.5 + y;
  };
  const Function plain = [](const Tensors& in) {
    const at::Tensor h = in[0] + in[1];
    return h * 0.5 + at::layer_norm(h, {20}, in[2], {}, 1e-5);
  };
  expect_gradient(ours, {at::randn({2, 6}), at::randn({2, 6}), at::randn({6})});
  const Tensors wanted = run(plain, leaves(values, at::kDouble));
  for (auto [type, tolerance] : {std::pair{at::kBFloat16, 1e-2}, {at::kHalf, 2.5e-3}}) {
    Tensors mixed = leaves(values, at::kFloat);
    mixed[1] = values[1].to(type).set_requires_grad(true);
    const Tensors got = run(ours, mixed);
    EXPECT_EQ(got[2].scalar_type(), type);
    for (std::size_t i = 0; i < got.size(); ++i)
      EXPECT_LT(relative(got[i], wanted[i]), tolerance) << i;
  }
}

TEST_P(EachWay, AStreamAndItsNorm) {
  const auto ours = [](double stream, double norm) -> Function {
    return [=](const Tensors& in) {
      const at::ScalarType type = in[0].scalar_type();
      const auto [x, y] = stream_layer_norm(in[0], in[1], {}, 1e-5, type);
      return stream == 0 ? y * norm : norm == 0 ? x * stream : x * stream + y * norm;
    };
  };
  for (const auto& [stream, norm] : {std::pair{0.5, 2.0}, {0.0, 2.0}}) {
    const Function plain = [=](const Tensors& in) {
      return in[0] * stream + at::layer_norm(in[0], {20}, in[1], {}, 1e-5) * norm;
    };
    const Tensors values = {at::randn({40, 20}), at::randn({20})};
    expect_gradient(ours(stream, norm), {values[0].narrow(0, 0, 3), values[1]});
    const Tensors wanted = run(plain, leaves(values, at::kDouble));
    const Tensors got = run(ours(stream, norm), leaves(values, at::kFloat));
    for (std::size_t i = 0; i < got.size(); ++i) EXPECT_LT(relative(got[i], wanted[i]), 2e-6) << i;
  }
  const Tensors unused = {at::randn({3, 20}).set_requires_grad(true), at::randn({20})};
  ours(0.5, 0)(unused).sum().backward();
  EXPECT_TRUE(at::equal(unused[0].grad(), at::full({3, 20}, 0.5)));
}

at::Tensor plain_attention(const at::Tensor& qkv, std::int64_t heads, bool causal = true) {
  const auto batch = qkv.size(0), length = qkv.size(1), width = qkv.size(2) / 3;
  const at::Tensor parts =
      qkv.view({batch, length, 3, heads, width / heads}).permute({2, 0, 3, 1, 4});
  at::Tensor scores = at::matmul(parts[0], parts[1].transpose(-1, -2)) /
                      std::sqrt(static_cast<double>(width / heads));
  const at::Tensor later = at::ones({length, length}, at::kBool).triu(1);
  if (causal) scores = scores.masked_fill(later, -INFINITY);
  scores = scores.softmax(-1);
  return at::matmul(scores, parts[2]).transpose(1, 2).reshape({batch, length, width});
}

TEST_P(EachWay, CausalAttention) {
  // Lengths: one block, several and a remainder, and one too long to keep its probabilities.
  for (std::int64_t length : {1, 7, 64, 150, 530}) {
    const Function ours = [](const Tensors& in) { return attention(in[0], 2, true); };
    const Function plain = [](const Tensors& in) { return plain_attention(in[0], 2); };
    expect_like(ours, plain, {at::randn({2, length, 48})});
  }
  expect_gradient([](const Tensors& in) { return attention(in[0], 2, true); },
                  {at::randn({1, 5, 12})});
}

TEST_P(EachWay, BidirectionalAttention) {
  for (std::int64_t length : {1, 7, 64, 150, 530}) {
    const Function ours = [](const Tensors& in) { return attention(in[0], 2, false); };
    const Function plain = [](const Tensors& in) { return plain_attention(in[0], 2, false); };
    expect_like(ours, plain, {at::randn({2, length, 48})});
  }
  expect_gradient([](const Tensors& in) { return attention(in[0], 2, false); },
                  {at::randn({1, 5, 12})});
}

TEST_P(EachWay, CrossEntropy) {
  const at::Tensor targets = at::tensor({3, 0, -1, 40, 7, 7}, at::kLong).view({2, 3});
  const Function ours = [](const Tensors& in) { return cross_entropy_sum(in[0], in[1]); };
  const Function plain = [](const Tensors& in) {
    return at::cross_entropy_loss(in[0].view({6, 41}), in[1].flatten(), {}, at::Reduction::Sum, -1);
  };
  expect_like(ours, plain, {at::randn({2, 3, 41}) * 3, targets});
  EXPECT_THROW(cross_entropy_sum(at::zeros({2, 3}), at::tensor({0}, at::kLong)), ConfigError);
  expect_gradient(ours, {at::randn({2, 3, 41}), targets});
  EXPECT_TRUE(
      cross_entropy_sum(at::full({2, 3}, NAN), at::tensor({0, 1}, at::kLong)).isnan().item<bool>());
}

// 41 rows are filled up on a device, 48 are not.
TEST_P(EachWay, LogitsAndTheirLoss) {
  const at::Tensor targets = at::tensor({3, 0, -1, 40, 7, 7}, at::kLong).view({2, 3});
  for (const bool with_bias : {false, true}) {
    for (const std::int64_t rows : {41, 48}) {
      Tensors values = {at::randn({2, 3, 24}), at::randn({rows, 24}), targets};
      if (with_bias) values.push_back(at::randn({rows}));
      const auto bias_of = [=](const Tensors& in) { return with_bias ? in[3] : at::Tensor(); };
      const Function logits_of = [&](const Tensors& in) {
        return tensor::logits(in[0], in[1], bias_of(in));
      };
      expect_like(
          logits_of, [&](const Tensors& in) { return at::linear(in[0], in[1], bias_of(in)); },
          values);
      expect_like([&](const Tensors& in) { return cross_entropy_sum(logits_of(in), in[2]); },
                  [&](const Tensors& in) {
                    const at::Tensor logits = at::linear(in[0], in[1], bias_of(in));
                    return at::cross_entropy_loss(logits.view({6, rows}), in[2].flatten(), {},
                                                  at::Reduction::Sum, -1);
                  },
                  values);
    }
  }
}

TEST_P(EachWay, Embedding) {
  const at::Tensor tokens = at::tensor({1, 5, 1, 0, 2, 5}, at::kLong).view({2, 3});
  const Tensors values = {tokens, at::randn({6, 10}), at::randn({4, 10})};
  const Function ours = [](const Tensors& in) { return tensor::embedding(in[0], in[1], in[2]); };
  const Function plain = [](const Tensors& in) {
    return at::embedding(in[1], in[0]) + in[2].narrow(0, 0, 3);
  };
  expect_like(ours, plain, values);
}

// Parameters that are parts of others, or transposed.
TEST_P(EachWay, StridedParametersAreReadByTheirStrides) {
  const at::Tensor tokens = at::tensor({1, 5, 1, 0, 2, 5}, at::kLong).view({2, 3});
  expect_like([&](const Tensors& in) { return tensor::embedding(tokens, in[0].t(), in[1].t()); },
              [&](const Tensors& in) {
                return at::embedding(in[0].t(), tokens) + in[1].t().narrow(0, 0, 3);
              },
              {at::randn({10, 6}), at::randn({10, 4})});
  const Tensors values = {at::randn({3, 7}), at::randn({7, 2})};
  const Tensors wanted = run(
      [](const Tensors& in) {
        return at::layer_norm(in[0], {7}, in[1].select(1, 0), in[1].select(1, 1), 1e-5);
      },
      leaves(values, at::kDouble));
  for (const auto& [type, tolerance] : {std::pair{at::kDouble, 1e-13}, {at::kFloat, 5e-6}}) {
    const Tensors got = run(
        [type](const Tensors& in) {
          return layer_norm(in[0], in[1].select(1, 0), in[1].select(1, 1), 1e-5, type);
        },
        leaves(values, type));
    for (std::size_t i = 0; i < got.size(); ++i) EXPECT_LT(relative(got[i], wanted[i]), tolerance);
  }
}

TEST_F(Functions, APositionTableOfAnotherWidthOrTypeIsRefused) {
  const at::Tensor tokens = at::zeros({1, 2}, at::kLong), table = at::randn({6, 10});
  EXPECT_THROW(tensor::embedding(tokens, table, at::randn({4, 9})), CheckFailure);
  EXPECT_THROW(tensor::embedding(tokens, table, at::randn({4, 10}, at::kDouble)), CheckFailure);
}

TEST_F(Functions, RefuseWhatIsOutsideTheVocabulary) {
  EXPECT_THROW(cross_entropy_sum(at::zeros({2, 3}), at::tensor({0, 3}, at::kLong)), ConfigError);
  EXPECT_THROW(tensor::embedding(at::tensor({0, 6}, at::kLong), at::randn({6, 10}), {}),
               ConfigError);
}

TEST_P(EachWay, TokensOfAnotherTypeAndTooManyPositionsAreRefused) {
  const at::Tensor table = at::randn({6, 10}), position = at::randn({4, 10});
  for (const at::ScalarType type : {at::kInt, at::kFloat, at::kByte})
    EXPECT_THROW(tensor::embedding(at::ones({2, 3}, type), table, {}), ConfigError) << type;
  EXPECT_THROW(tensor::embedding(at::ones({2, 5}, at::kLong), table, position), ConfigError);
  EXPECT_EQ(tensor::embedding(at::ones({2, 5}, at::kLong), table, {}).size(1), 5);
}

// As many elements are not enough.
TEST_P(EachWay, ShapesThatDisagreeAreRefused) {
  const at::Tensor x = at::randn({2, 3, 4}), y = at::randn({3, 2, 4}), weight = at::ones({4});
  EXPECT_THROW(residual_add(x, y), CheckFailure);
  EXPECT_THROW(add_layer_norm(x, y, weight, {}, 1e-5), CheckFailure);
  EXPECT_THROW(cross_entropy_sum(x, at::zeros({3, 2}, at::kLong)), ConfigError);
  EXPECT_THROW(cross_entropy_sum(x, at::zeros({6}, at::kLong)), ConfigError);
  EXPECT_THROW(cross_entropy_sum(x, at::zeros({2, 3}, at::kInt)), ConfigError);
}

TEST_P(EachWay, NothingGivesNothing) {
  const at::Tensor weight = at::randn({6, 4}).requires_grad_(), bias = at::randn({6}),
                   scale = at::ones({4}).requires_grad_();
  for (const at::ScalarType type : {at::kDouble, at::kFloat, at::kBFloat16, at::kHalf}) {
    const at::Tensor rows = at::zeros({0, 3, 4}, type).requires_grad_(), w = weight.to(type);
    const auto wide = type == at::kDouble ? at::kDouble : at::kFloat;
    tensor::linear(rows, w, bias.to(type)).sum().backward();
    tensor::linear_gelu(rows, w, bias.to(type)).sum().backward();
    EXPECT_EQ(rows.grad().sizes(), rows.sizes());
    gated(kernel::Gate::Silu, rows).sum().backward();
    tensor::layer_norm(rows.to(wide), scale.to(wide), {}, 1e-5, type).sum().backward();
    attention(at::zeros({0, 3, 12}, type).requires_grad_(), 2, true).sum().backward();
    EXPECT_EQ(cross_entropy_sum(rows, at::zeros({0, 3}, at::kLong)).item<double>(), 0);
    EXPECT_EQ(tensor::embedding(at::zeros({0, 3}, at::kLong), w, {}).numel(), 0);
  }
  EXPECT_EQ(weight.grad().abs().sum().item<double>(), 0);
}

TEST_F(Functions, DeferredGradientsAreThoseOfTheWholeBackwardPass) {
  const Tensors values = {at::randn({3, 5, 8}), at::randn({6, 8}), at::randn({6})};
  const auto run = [&](bool defer) {
    Tensors in;
    for (const at::Tensor& one : values) in.push_back(one.clone().requires_grad_());
    const at::Tensor out = tensor::linear_gelu(in[0], in[1], in[2]);
    std::vector<DeferredGradient> deferred;
    {
      std::optional<DeferScope> scope;
      if (defer) scope.emplace(deferred);
      (out * out).sum().backward();
    }
    EXPECT_EQ(deferred.size(), defer ? 2u : 0u);
    EXPECT_EQ(in[1].grad().defined(), !defer);
    for (const DeferredGradient& one : deferred)
      (one.parameter.is_same(in[1]) ? in[1] : in[2]).mutable_grad() = one.compute();
    return Tensors{in[0].grad(), in[1].grad(), in[2].grad()};
  };
  const Tensors whole = run(false), halves = run(true);
  for (std::size_t i = 0; i < whole.size(); ++i) EXPECT_TRUE(at::equal(whole[i], halves[i])) << i;
}

// The node that computed the weight needs its gradient at once.
TEST_F(Functions, AComputedWeightIsNotDeferred) {
  const at::Tensor scale = at::randn({6, 1}).requires_grad_();
  std::vector<DeferredGradient> deferred;
  const DeferScope scope(deferred);
  tensor::linear(at::randn({3, 8}), scale * at::randn({6, 8}), {}).sum().backward();
  EXPECT_TRUE(deferred.empty());
  EXPECT_TRUE(scale.grad().defined());
}

TEST_P(EachWay, ResidualAddRoundsTheUpdatesGradientOnly) {
  const Tensors values = {at::randn({3, 50}), at::randn({3, 50})};
  expect_like(
      [](const Tensors& in) {
        return residual_add(
            at::isReducedFloatingType(in[0].scalar_type()) ? in[0].to(at::kFloat) : in[0], in[1]);
      },
      [](const Tensors& in) { return in[0] + in[1]; }, values);
}

// A layout decides where a parameter lies in memory, and must not decide a bit.
TEST(Products, DoNotDependOnWhereTheirOperandsLie) {
  const auto moved = [](const at::Tensor& value, std::int64_t elements) {
    const at::Tensor all = at::empty({value.numel() + elements}, value.options());
    return all.narrow(0, elements, value.numel()).view(value.sizes()).copy_(value);
  };
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    for (const auto& [rows, in, out] : {std::array{256, 384, 1152}, std::array{37, 65, 129}}) {
      const at::Tensor x = at::randn({rows, in}).to(type), weight = at::randn({out, in}).to(type),
                       dy = at::randn({rows, out}).to(type);
      const at::Tensor y = linear_forward(x, weight, {}), dx = linear_input_gradient(dy, weight),
                       dweight = linear_weight_gradient(dy, x);
      for (const int by : {1, 4, 8, 13}) {
        const at::Tensor other = moved(x, by), others = moved(weight, 16 - by),
                         gradient = moved(dy, by / 2);
        EXPECT_TRUE(at::equal(linear_forward(other, others, {}), y)) << by;
        EXPECT_TRUE(at::equal(linear_input_gradient(gradient, others), dx)) << by;
        EXPECT_TRUE(at::equal(linear_weight_gradient(gradient, other), dweight)) << by;
      }
    }
  }
}

// Compared with operands rounded by hand: products differ at most by the order of additions, and a
// second call gives the same bits.
TEST(Products, InBf16AreThoseOfRoundedOperands) {
  struct Restore {
    ~Restore() { set_fp32_products(Products::Fp32); }
  } restore;
  const at::Tensor x = at::randn({33, 70}), weight = at::randn({41, 70}), bias = at::randn({41});
  const auto rounded = [](const at::Tensor& value) {
    return value.to(at::kBFloat16).to(at::kDouble);
  };
  const auto near = [](const at::Tensor& own, const at::Tensor& wanted) {
    EXPECT_EQ(own.scalar_type(), at::kFloat);
    EXPECT_TRUE(at::allclose(own.to(at::kDouble), wanted, 1e-5, 1e-5));
  };
  const at::Tensor plain = linear_forward(x, weight, bias);
  set_fp32_products(Products::Bf16);
  const at::Tensor y = linear_forward(x, weight, bias);
  near(y, at::mm(rounded(x), rounded(weight).t()) + bias.to(at::kDouble));
  EXPECT_FALSE(at::allclose(y, plain, 1e-5, 1e-5));
  EXPECT_TRUE(at::equal(linear_forward(x, weight, bias), y));
  near(linear_forward(x, weight, {}), at::mm(rounded(x), rounded(weight).t()));
  near(linear_input_gradient(y, weight), at::mm(rounded(y), rounded(weight)));
  near(linear_weight_gradient(y, x), at::mm(rounded(y).t(), rounded(x)));
  near(linear_weight_gradient(y.t().contiguous().t(), x), at::mm(rounded(y).t(), rounded(x)));
  // fp64 does not change.
  const at::Tensor wide = x.to(at::kDouble);
  EXPECT_TRUE(at::equal(linear_forward(wide, weight.to(at::kDouble), {}),
                        at::linear(wide, weight.to(at::kDouble))));
}

TEST(Products, AttentionInBf16IsNearThatOfFp32) {
  struct Restore {
    ~Restore() { set_fp32_products(Products::Fp32); }
  } restore;
  at::Tensor qkv = at::randn({2, 40, 96}).set_requires_grad(true);
  const auto run_once = [&] {
    const at::Tensor y = attention(qkv, 2, true);
    qkv.mutable_grad() = at::Tensor();
    y.pow(2).sum().backward();
    return std::pair{y.detach(), qkv.grad().clone()};
  };
  const auto [y, gradient] = run_once();
  set_fp32_products(Products::Bf16);
  const auto [own, own_gradient] = run_once();
  EXPECT_FALSE(at::equal(own, y));
  EXPECT_LT((own - y).norm().item<double>(), 0.02 * y.norm().item<double>());
  EXPECT_LT((own_gradient - gradient).norm().item<double>(), 0.03 * gradient.norm().item<double>());
}

}  // namespace
}  // namespace trireme::tensor
