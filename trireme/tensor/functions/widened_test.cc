// Linear layers and convolutions whose 16-bit operands are multiplied in fp32: values and gradients
// are those of fp32, rounded once, bit for bit.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/function.h>

#include <vector>

#include "trireme/tensor/autocast.h"
#include "trireme/tensor/flat_math.h"
#include "trireme/tensor/functions/functions.h"
#include "trireme/tensor/products/gemm.h"
#include "trireme/tensor/products/kernel_table.h"

namespace trireme::tensor::widened_test {
namespace {

// The table's products in bf16 are `library` while it lives.
class Bf16ProductsBy {
 public:
  explicit Bf16ProductsBy(Library library) {
    KernelTable table = outer_;
    table.linear_bf16 = table.small_bf16 = library;
    use_kernel_table(table);
  }
  ~Bf16ProductsBy() { use_kernel_table(outer_); }

 private:
  const KernelTable outer_ = kernel_table();
};

at::Tensor random(at::IntArrayRef sizes, at::ScalarType type) { return at::randn(sizes).to(type); }
at::Tensor wide(const at::Tensor& half) { return half.to(at::kFloat); }

void expect_rounded(const at::Tensor& got, const at::Tensor& wanted, at::ScalarType type) {
  EXPECT_EQ(got.scalar_type(), type);
  EXPECT_TRUE(at::equal(got, wanted.to(type))) << type << " " << got.sizes();
}

void expect_products_rounded_once(at::ScalarType type, std::int64_t rows, std::int64_t in,
                                  std::int64_t out) {
  const at::Tensor x = random({rows, in}, type), weight = random({out, in}, type);
  const at::Tensor bias = random({out}, type), dy = random({rows, out}, type);
  const at::Tensor columns = random({in, rows}, type).t();  // rows that are not contiguous
  expect_rounded(linear_forward(x, weight, bias), linear_forward(wide(x), wide(weight), wide(bias)),
                 type);
  expect_rounded(linear_forward(x, weight, {}), linear_forward(wide(x), wide(weight), {}), type);
  expect_rounded(linear_forward(columns, weight, bias),
                 linear_forward(wide(columns).contiguous(), wide(weight), wide(bias)), type);
  expect_rounded(linear_input_gradient(dy, weight), linear_input_gradient(wide(dy), wide(weight)),
                 type);
  expect_rounded(linear_weight_gradient(dy, x), linear_weight_gradient(wide(dy), wide(x)), type);
}

TEST(WidenedProducts, InFp16AreFp32sRoundedOnce) {
  expect_products_rounded_once(at::kHalf, 33, 70, 41);
}

TEST(WidenedProducts, InBf16AreFp32sRoundedOnceWhereTheTableSaysSo) {
  const Bf16ProductsBy widened(Library::Widened);
  expect_products_rounded_once(at::kBFloat16, 33, 70, 41);
  expect_products_rounded_once(at::kBFloat16, 200, 256, 384);  // more than kSmallProduct
}

struct ConvolutionResults {
  at::Tensor y, dx, dweight;
};
ConvolutionResults convolve(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& dy,
                            std::int64_t stride) {
  const at::Tensor input = x.detach().set_requires_grad(true);
  const at::Tensor kernel = weight.detach().set_requires_grad(true);
  const at::Tensor y = convolution(input, kernel, stride, (weight.size(2) - 1) / 2);
  y.backward(dy);
  return {y.detach(), input.grad(), kernel.grad()};
}

TEST(WidenedConvolution, In16BitsIsFp32sRoundedOnce) {
  const Bf16ProductsBy widened(Library::Widened);
  for (const at::ScalarType type : {at::kBFloat16, at::kHalf}) {
    for (const auto& [size, stride] : {std::pair{3, 1}, {3, 2}, {1, 2}}) {
      const at::Tensor x = random({4, 6, 8, 8}, type), weight = random({10, 6, size, size}, type);
      const at::Tensor dy = random({4, 10, 8 / stride, 8 / stride}, type);
      const ConvolutionResults got = convolve(x, weight, dy, stride);
      const ConvolutionResults wanted = convolve(wide(x), wide(weight), wide(dy), stride);
      expect_rounded(got.y, wanted.y, type);
      expect_rounded(got.dx, wanted.dx, type);
      expect_rounded(got.dweight, wanted.dweight, type);
    }
  }
}

// Autocast would convert the operands in fp32 back.
TEST(WidenedConvolution, UnderAutocastIsThatOfCastOperands) {
  const Bf16ProductsBy widened(Library::Widened);
  const at::Tensor x = at::randn({4, 6, 8, 8}), weight = at::randn({10, 6, 3, 3});
  for (const at::ScalarType type : {at::kBFloat16, at::kHalf}) {
    const at::Tensor dy = random({4, 10, 8, 8}, type);
    const ConvolutionResults wanted = convolve(x.to(type), weight.to(type), dy, 1);
    const Autocast casts(at::kCPU, type);
    for (const at::Tensor& input : {x, x.to(type)}) {
      const ConvolutionResults got = convolve(input, weight, dy, 1);
      expect_rounded(got.y, wanted.y, type);
      expect_rounded(got.dx, wanted.dx, input.scalar_type());
      expect_rounded(got.dweight, wanted.dweight, at::kFloat);
    }
  }
}

TEST(WidenedConvolution, LeavesOutTheGradientOfImages) {
  const Bf16ProductsBy widened(Library::Widened);
  const at::Tensor x = random({2, 3, 8, 8}, at::kBFloat16);
  const at::Tensor weight = random({4, 3, 3, 3}, at::kBFloat16).set_requires_grad(true);
  convolution(x, weight, 1, 1).sum().backward();
  EXPECT_TRUE(weight.grad().defined());
  EXPECT_FALSE(x.grad().defined());
}

TEST(WidenedConvolution, IsNotUsedWhereTheTableLeavesBf16ToLibTorch) {
  const Bf16ProductsBy aten(Library::Aten);
  const at::Tensor x = random({2, 3, 8, 8}, at::kBFloat16);
  const at::Tensor weight = random({4, 3, 3, 3}, at::kBFloat16);
  EXPECT_TRUE(at::equal(convolution(x, weight, 1, 1), at::conv2d(x, weight, {}, 1, 1)));
}

TEST(WidenedConvolution, IsNotUsedOnDevices) {
  const LibTorchOnCpu as_on_a_device;
  const at::Tensor x = random({2, 3, 8, 8}, at::kHalf);
  const at::Tensor weight = random({4, 3, 3, 3}, at::kHalf).set_requires_grad(true);
  EXPECT_EQ(convolution(x, weight, 1, 1).grad_fn()->name(), "ConvolutionBackward0");
}

}  // namespace
}  // namespace trireme::tensor::widened_test
