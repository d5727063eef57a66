// Operations give the bits that LibTorch's CPU operations give with one thread.
#include <ATen/ATen.h>
#include <ATen/DeviceAccelerator.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "trireme/testing/emulated_device/device_data.h"
#include "trireme/testing/emulated_device/test_device.h"

namespace trireme::operations_test {
namespace {

using at::Tensor;
using testing::on, testing::same_bits;
using Tensors = std::vector<Tensor>;
using Function = std::function<Tensors(const Tensors&)>;

class EmulatedOperations : public testing::EmulatedTest {
 protected:
  void SetUp() override {
    EmulatedTest::SetUp();
    at::set_num_threads(1);
    at::manual_seed(5);
  }
};

Tensors leaves(const Tensors& values, c10::Device device) {
  Tensors made;
  for (const Tensor& value : values) {
    made.push_back(value.detach().to(device, value.scalar_type(), false, true));
    if (value.is_floating_point()) made.back().set_requires_grad(true);
  }
  return made;
}

/// Results of `function`, then the gradients of the arguments from a fixed gradient of each result.
Tensors results(const Function& function, const Tensors& arguments, bool backward) {
  Tensors made = function(arguments);
  if (!backward) return made;
  Tensors roots, gradients;
  for (const Tensor& result : made) {
    if (!result.requires_grad()) continue;
    roots.push_back(result);
    const Tensor ramp =
        at::arange(result.numel(), result.options().device(at::kCPU).dtype(at::kDouble));
    gradients.push_back(
        ramp.mul(0.37).sin().to(result.scalar_type()).view(result.sizes()).to(result.device()));
  }
  Tensor sum;
  for (std::size_t i = 0; i < roots.size(); ++i)
    roots[i].backward(gradients[i], /*retain_graph=*/true);
  for (const Tensor& argument : arguments)
    if (argument.grad().defined()) made.push_back(argument.grad());
  return made;
}

void expect_same(const std::string& what, const Function& function, const Tensors& values,
                 bool backward = true) {
  SCOPED_TRACE(what);
  const Tensors wanted = results(function, leaves(values, at::kCPU), backward);
  const Tensors found = results(function, leaves(values, on(1)), backward);
  ASSERT_EQ(wanted.size(), found.size());
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    EXPECT_TRUE(same_bits(wanted[i], found[i])) << "tensor " << i;
    EXPECT_EQ(wanted[i].strides(), found[i].strides()) << "tensor " << i;
    EXPECT_EQ(found[i].device(), on(1));
  }
}

Tensor random(at::IntArrayRef sizes, at::ScalarType type = at::kFloat) {
  return at::randn(sizes, at::kDouble).to(type);
}

constexpr at::ScalarType kFloats[] = {at::kDouble, at::kFloat, at::kBFloat16, at::kHalf};

TEST_F(EmulatedOperations, Elementwise) {
  for (const at::ScalarType type : kFloats) {
    const Tensors two{random({5, 7}, type), random({5, 7}, type)};
    expect_same(
        "add", [](const Tensors& x) { return Tensors{x[0] + x[1]}; }, two);
    expect_same(
        "mul by a number", [](const Tensors& x) { return Tensors{x[0] * 0.3 - 1}; }, two);
    expect_same(
        "broadcast", [](const Tensors& x) { return Tensors{x[0] / x[1][0]}; }, two);
    expect_same(
        "gelu", [](const Tensors& x) { return Tensors{at::gelu(x[0]) * at::silu(x[1])}; }, two);
    expect_same(
        "where", [](const Tensors& x) { return Tensors{at::where(x[0] > x[1], x[0], x[1])}; }, two);
    expect_same(
        "cast", [](const Tensors& x) { return Tensors{x[0].to(at::kFloat).exp()}; }, two);
    expect_same(
        "number on the right",
        [](const Tensors& x) { return Tensors{x[0] + at::scalar_tensor(2.5, at::kDouble)}; }, two);
  }
}

TEST_F(EmulatedOperations, InPlace) {
  const Tensors two{random({6, 4}), random({6, 4})};
  expect_same(
      "in place",
      [](const Tensors& x) {
        Tensor y = x[0].clone();
        y.add_(x[1]).mul_(x[0]).clamp_(-1, 1);
        y.select(0, 2).zero_();
        y.slice(1, 1, 3).copy_(x[1].slice(1, 0, 2));
        return Tensors{y};
      },
      two);
  expect_same(
      "out=",
      [](const Tensors& x) {
        Tensor out = at::empty({0}, x[0].options());
        at::add_out(out, x[0].detach(), x[1].detach());
        out.resize_({0});
        at::mm_out(out, x[0].detach(), x[1].detach().t());
        return Tensors{out};
      },
      two, false);
}

TEST_F(EmulatedOperations, Products) {
  for (const at::ScalarType type : kFloats) {
    expect_same("matmul", [](const Tensors& x) { return Tensors{at::matmul(x[0], x[1])}; },
                {random({17, 33}, type), random({33, 9}, type)});
    expect_same("batched", [](const Tensors& x) { return Tensors{at::matmul(x[0], x[1])}; },
                {random({3, 4, 17, 8}, type), random({3, 4, 8, 9}, type)});
    expect_same("linear", [](const Tensors& x) { return Tensors{at::linear(x[0], x[1], x[2])}; },
                {random({4, 5, 16}, type), random({24, 16}, type), random({24}, type)});
    expect_same("linear without bias",
                [](const Tensors& x) { return Tensors{at::linear(x[0], x[1])}; },
                {random({4, 5, 16}, type), random({24, 16}, type)});
  }
}

TEST_F(EmulatedOperations, NormsAndSoftmax) {
  for (const at::ScalarType type : kFloats) {
    expect_same("layer_norm",
                [](const Tensors& x) { return Tensors{at::layer_norm(x[0], {32}, x[1], x[2])}; },
                {random({6, 5, 32}, type), random({32}, type), random({32}, type)});
    expect_same("softmax",
                [](const Tensors& x) {
                  return Tensors{at::softmax(x[0], -1), at::log_softmax(x[0], 0)};
                },
                {random({7, 19}, type)});
    expect_same("rms",
                [](const Tensors& x) {
                  return Tensors{x[0] * at::rsqrt(x[0].pow(2).mean(-1, true) + 1e-5)};
                },
                {random({7, 19}, type)});
  }
  expect_same("group_norm",
              [](const Tensors& x) { return Tensors{at::group_norm(x[0], 2, x[1], x[2])}; },
              {random({2, 4, 5, 5}), random({4}), random({4})});
}

TEST_F(EmulatedOperations, LossesAndEmbeddings) {
  const Tensor targets = at::randint(0, 11, {13}, at::kLong);
  for (const at::ScalarType type : {at::kDouble, at::kFloat, at::kBFloat16}) {
    expect_same("cross_entropy",
                [](const Tensors& x) { return Tensors{at::cross_entropy_loss(x[0], x[1])}; },
                {random({13, 11}, type), targets});
    expect_same("embedding", [](const Tensors& x) { return Tensors{at::embedding(x[0], x[1])}; },
                {random({11, 6}, type), targets});
  }
  expect_same("mse", [](const Tensors& x) { return Tensors{at::mse_loss(x[0], x[1])}; },
              {random({13, 11}), random({13, 11})});
}

TEST_F(EmulatedOperations, Convolution) {
  for (const at::ScalarType type : {at::kDouble, at::kFloat, at::kBFloat16}) {
    expect_same("conv2d, batch_norm, relu, max_pool2d",
                [](const Tensors& x) {
                  Tensor mean = at::zeros({6}, x[0].options()), var = at::ones({6}, x[0].options());
                  Tensor y = at::conv2d(x[0], x[1], x[2], 1, 1);
                  y = at::relu(at::batch_norm(y, x[3], x[4], mean, var, true, 0.1, 1e-5, false));
                  return Tensors{at::max_pool2d(y, 2), mean, var};
                },
                {random({2, 3, 8, 8}, type), random({6, 3, 3, 3}, type), random({6}, type),
                 random({6}, type), random({6}, type)});
    expect_same(
        "strided, grouped",
        [](const Tensors& x) {
          return Tensors{
              at::adaptive_avg_pool2d(at::conv2d(x[0], x[1], {}, 2, 1, 1, 2), {1, 1}).flatten(1)};
        },
        {random({2, 4, 9, 9}, type), random({6, 2, 3, 3}, type)});
  }
  expect_same("channels_last",
              [](const Tensors& x) {
                return Tensors{at::conv2d(x[0].contiguous(at::MemoryFormat::ChannelsLast), x[1])};
              },
              {random({2, 3, 8, 8}), random({6, 3, 3, 3})});
  expect_same(
      "conv1d, transposed",
      [](const Tensors& x) { return Tensors{at::conv_transpose1d(at::conv1d(x[0], x[1]), x[1])}; },
      {random({2, 3, 8}), random({6, 3, 3})});
}

TEST_F(EmulatedOperations, Attention) {
  for (const at::ScalarType type : kFloats) {
    const Tensors three{random({2, 3, 20, 16}, type), random({2, 3, 20, 16}, type),
                        random({2, 3, 20, 16}, type)};
    expect_same(
        "causal",
        [](const Tensors& x) {
          return Tensors{at::scaled_dot_product_attention(x[0], x[1], x[2], {}, 0, true)};
        },
        three);
    expect_same(
        "full",
        [](const Tensors& x) {
          return Tensors{at::scaled_dot_product_attention(x[0], x[1], x[2])};
        },
        three);
    expect_same(
        "masked",
        [](const Tensors& x) {
          const Tensor mask = at::ones({20, 20}, x[0].options().dtype(at::kBool)).tril();
          return Tensors{at::scaled_dot_product_attention(x[0], x[1], x[2], mask)};
        },
        three);
    expect_same(
        "from one projection",
        [](const Tensors& x) {
          const Tensors parts = x[0].view({2, 10, 3, 2, 8}).permute({2, 0, 3, 1, 4}).unbind(0);
          return Tensors{at::scaled_dot_product_attention(parts[0], parts[1], parts[2], {}, 0, true)
                             .transpose(1, 2)
                             .reshape({2, 10, 16})};
        },
        {random({2, 10, 48}, type)});
  }
}

TEST_F(EmulatedOperations, ShapesAndIndices) {
  const Tensor rows = at::randint(0, 6, {9}, at::kLong);
  expect_same("cat, split, stack, pad",
              [](const Tensors& x) {
                Tensors parts = at::cat({x[0], x[1]}, 1).split(3, 1);
                parts.push_back(at::stack({x[0], x[1]}, 1));
                parts.push_back(at::constant_pad_nd(x[0], {1, 2}, 0.5));
                parts.push_back(x[0].unfold(0, 3, 2).contiguous());
                parts.push_back(x[1].flip(0).roll(1).t().expand({4, 6}).contiguous());
                return parts;
              },
              {random({6, 4}), random({6, 4})});
  expect_same("index",
              [](const Tensors& x) {
                Tensor y = x[0].index({x[1]}), z = at::zeros_like(x[0]);
                z = z.index_add(0, x[1], y).index_put({x[1]}, y.mul(2), true);
                return Tensors{y, z, x[0].gather(0, x[1].view({9, 1}).expand({9, 4})),
                               x[0].index_select(0, x[1])};
              },
              {random({6, 4}), rows});
  expect_same("masks",
              [](const Tensors& x) {
                const Tensor mask = x[0] > 0;
                return Tensors{x[0].masked_select(mask), x[0].index({mask}),
                               x[0].masked_fill(mask, 3), mask.nonzero()};
              },
              {random({6, 4})});
  expect_same("sort, topk, unique",
              [](const Tensors& x) {
                const auto [sorted, order] = x[0].sort(1);
                const auto [top, where] = x[0].topk(2, 1);
                return Tensors{sorted, order, top, where, std::get<0>(at::_unique2(x[1]))};
              },
              {random({6, 4}), rows});
}

TEST_F(EmulatedOperations, Reductions) {
  for (const at::ScalarType type : kFloats) {
    expect_same("sum, mean, norm, max",
                [](const Tensors& x) {
                  return Tensors{x[0].sum(),
                                 x[0].sum(0),
                                 x[0].mean(-1),
                                 x[0].norm(),
                                 x[0].amax(1),
                                 x[0].var(1),
                                 std::get<0>(x[0].max(0)),
                                 x[0].cumsum(0),
                                 x[0].logsumexp(1)};
                },
                {random({37, 23}, type)});
  }
  const Tensor value = random({40}).to(on(0));
  EXPECT_EQ(value.argmax().item<std::int64_t>(), value.cpu().argmax().item<std::int64_t>());
  EXPECT_TRUE(at::equal(value, value.clone()));
  EXPECT_FALSE(value.isnan().any().item<bool>());
}

TEST_F(EmulatedOperations, Optimizers) {
  Tensors parameters, gradients, firsts, seconds;
  for (const std::int64_t size : {3, 40, 1000}) {
    parameters.push_back(random({size}));
    gradients.push_back(random({size}));
    firsts.push_back(random({size}));
    seconds.push_back(random({size}).abs());
  }
  const auto run = [&](c10::Device device) {
    const auto copied = [&](const Tensors& values) {
      Tensors made;
      for (const Tensor& value : values)
        made.push_back(value.to(device, value.scalar_type(), false, true));
      return made;
    };
    Tensors p = copied(parameters), g = copied(gradients), m = copied(firsts), v = copied(seconds),
            steps;
    for (std::size_t i = 0; i < p.size(); ++i) steps.push_back(at::full({}, 3.0F, p[i].options()));
    at::_fused_adamw_(p, g, m, v, {}, steps, 1e-2, 0.9, 0.95, 0.1, 1e-8, false, false);
    at::_foreach_mul_(g, 0.5);
    at::_foreach_add_(p, g, -0.1);
    at::_foreach_lerp_(m, g, 0.2);
    Tensors all = at::_foreach_sqrt(v);
    for (const Tensor& norm : at::_foreach_norm(g, 2)) all.push_back(norm);
    for (const Tensors& some : {p, g, m, v}) all.insert(all.end(), some.begin(), some.end());
    return all;
  };
  const Tensors wanted = run(at::kCPU), found = run(on(0));
  ASSERT_EQ(wanted.size(), found.size());
  for (std::size_t i = 0; i < wanted.size(); ++i) EXPECT_TRUE(same_bits(wanted[i], found[i])) << i;
}

TEST_F(EmulatedOperations, RandomNumbersAreThoseOfTheCpu) {
  const auto drawn = [](c10::Device device) {
    at::manual_seed(11);
    const at::TensorOptions options = at::TensorOptions(device).dtype(at::kFloat);
    Tensors made{at::randn({100}, options), at::rand({7, 3}, options),
                 at::randperm(20, options.dtype(at::kLong))};
    made.push_back(at::zeros({50}, options).bernoulli_(0.3));
    made.push_back(at::multinomial(made[1].softmax(1), 2));
    made.push_back(at::empty({9}, options).uniform_(-2, 2));
    return made;
  };
  const Tensors wanted = drawn(at::kCPU), found = drawn(on(0));
  for (std::size_t i = 0; i < wanted.size(); ++i) EXPECT_TRUE(same_bits(wanted[i], found[i])) << i;
}

TEST_F(EmulatedOperations, OneThreadComputes) {
  at::set_num_threads(2);
  int there = 0;
  const c10::Stream stream = at::accelerator::getCurrentStream(0);
  testing::launch_on_stream(
      stream, {"count", {}, {}, [&](const auto&, const auto&) { there = at::get_num_threads(); }});
  stream.synchronize();
  EXPECT_EQ(there, 1);
  EXPECT_EQ(at::get_num_threads(), 2);
  const Tensor left = random({300, 300}), right = random({300, 300});
  const Tensor found = at::mm(left.to(on(0)), right.to(on(0))).softmax(0).sum();
  at::set_num_threads(1);
  EXPECT_TRUE(same_bits(found, at::mm(left, right).softmax(0).sum()));
}

TEST_F(EmulatedOperations, TensorsOfTwoDevicesDoNotMix) {
  const Tensor one = at::ones({3}, on(0)), two = at::ones({3}, on(1)), host = at::ones({3});
  EXPECT_THROW(one + two, c10::Error);
  EXPECT_THROW(one + host, c10::Error);
}

TEST_F(EmulatedOperations, TensorsAreResized) {
  Tensor value = at::arange(6, at::TensorOptions(on(0)).dtype(at::kFloat));
  value.resize_({3, 4});
  EXPECT_TRUE(same_bits(value.flatten().slice(0, 0, 6), at::arange(6, at::kFloat)));
  Tensor other = at::empty({0}, value.options());
  other.set_(value);
  EXPECT_TRUE(other.is_set_to(value));
}

}  // namespace
}  // namespace trireme::operations_test
