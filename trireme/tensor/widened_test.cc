// Linear layers whose 16-bit operands are multiplied in fp32: values and gradients are those of
// fp32, rounded once, bit for bit.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <vector>

#include "trireme/tensor/gemm.h"
#include "trireme/tensor/kernel_table.h"

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

}  // namespace
}  // namespace trireme::tensor::widened_test
