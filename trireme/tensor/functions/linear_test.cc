// Linear layers beside LibTorch's ways: autocast, and changes of their results in place.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <vector>

#include "trireme/base/check.h"
#include "trireme/tensor/autocast.h"
#include "trireme/tensor/functions/functions.h"
#include "trireme/tensor/products/kernel_table.h"

namespace trireme::tensor::linear_test {
namespace {

using Tensors = std::vector<at::Tensor>;

// x, weight and bias.
const Tensors& values() {
  static const Tensors all = {at::randn({3, 5, 8}), at::randn({6, 8}), at::randn({6})};
  return all;
}

Tensors leaves() {
  Tensors all;
  for (const at::Tensor& one : values()) all.push_back(one.clone().requires_grad_());
  return all;
}

// The products in bf16 are by `library` while it lives.
class WithBf16By {
 public:
  explicit WithBf16By(Library library) {
    KernelTable table = outer_;
    table.linear_bf16 = table.small_bf16 = library;
    use_kernel_table(table);
  }
  ~WithBf16By() { use_kernel_table(outer_); }

 private:
  const KernelTable outer_ = kernel_table();
};

// The result and the gradients of fp32 leaves under autocast, also in the backward pass, or of leaves
// that are converted first.
Tensors in_bf16(bool by_autocast, const at::Tensor& slope) {
  const Tensors in = leaves();
  const Autocast casts(at::kCPU, at::kBFloat16, by_autocast);
  const auto operand = [&](std::size_t i) { return by_autocast ? in[i] : in[i].to(at::kBFloat16); };
  const at::Tensor y = linear_gelu(operand(0), operand(1), operand(2));
  y.backward(slope);
  return {y.detach(), in[0].grad(), in[1].grad(), in[2].grad()};
}

TEST(LinearLayers, UnderAutocastAreThoseOfCastOperands) {
  const at::Tensor slope = at::randn({3, 5, 6}).to(at::kBFloat16);
  for (const Library library : {Library::Aten, Library::Widened}) {
    const WithBf16By products(library);
    const Tensors got = in_bf16(true, slope), wanted = in_bf16(false, slope);
    for (std::size_t i = 0; i < got.size(); ++i) {
      EXPECT_EQ(got[i].scalar_type(), wanted[i].scalar_type()) << name_of(library) << i;
      EXPECT_TRUE(at::equal(got[i], wanted[i])) << name_of(library) << " result " << i;
    }
  }
}

TEST(LinearLayers, TheirResultsMayBeChangedInPlace) {
  const auto results = [](bool in_place) {
    const Tensors in = leaves();
    const at::Tensor y = tensor::linear(in[0], in[1], in[2]),
                     z = tensor::linear_gelu(in[0], in[1], in[2]);
    const at::Tensor sum = in_place ? y.relu_() + z.mul_(3) : y.relu() + z * 3;
    sum.square().sum().backward();
    return Tensors{sum.detach(), in[0].grad(), in[1].grad(), in[2].grad()};
  };
  const Tensors wanted = results(false), got = results(true);
  for (std::size_t i = 0; i < got.size(); ++i) EXPECT_TRUE(at::equal(got[i], wanted[i])) << i;
}

TEST(LinearLayers, ABiasOfAnotherTypeIsRefused) {
  const at::Tensor x = values()[0].to(at::kBFloat16), weight = values()[1].to(at::kBFloat16);
  EXPECT_THROW(tensor::linear(x, weight, values()[2]), CheckFailure);
}

}  // namespace
}  // namespace trireme::tensor::linear_test
