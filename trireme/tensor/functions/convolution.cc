// Convolutions: LibTorch's, in fp32 where LibTorch has no fast loop for 16-bit operands.
#include <ATen/ops/conv2d.h>
#include <ATen/ops/convolution_backward.h>

#include "trireme/tensor/functions/autograd.h"
#include "trireme/tensor/functions/functions.h"
#include "trireme/tensor/functions/implementations.h"
#include "trireme/tensor/products/kernel_table.h"

namespace trireme::inline v0::tensor {
namespace {

// As in linear layers (gemm.h). Devices multiply 16-bit operands themselves.
bool in_fp32(at::ScalarType type) {
  return type == at::kHalf ||
         (type == at::kBFloat16 && kernel_table().linear_bf16 == Library::Widened);
}

// Keeps the 16-bit operands for backward, not their copies in fp32.
class WidenedConvolution : public torch::autograd::Function<WidenedConvolution> {
 public:
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& weight,
                            std::int64_t stride, std::int64_t padding) {
    ctx->save_for_backward({x, weight});
    ctx->saved_data["stride"] = stride;
    ctx->saved_data["padding"] = padding;
    const NoAutocast types_as_given;
    return at::conv2d(x.to(at::kFloat), weight.to(at::kFloat), {}, stride, padding)
        .to(x.scalar_type());
  }

  static variable_list backward(AutogradContext* ctx, variable_list gradients) {
    const auto saved = ctx->get_saved_variables();
    const at::Tensor &x = saved[0], &weight = saved[1];
    const std::int64_t stride = ctx->saved_data["stride"].toInt();
    const std::int64_t padding = ctx->saved_data["padding"].toInt();
    auto [dx, dweight, dbias] = at::convolution_backward(
        gradients[0].to(at::kFloat), x.to(at::kFloat), weight.to(at::kFloat),
        /*bias_sizes=*/std::nullopt, {stride, stride}, {padding, padding}, /*dilation=*/{1, 1},
        /*transposed=*/false, /*output_padding=*/{0, 0}, /*groups=*/1,
        {ctx->needs_input_grad(0), ctx->needs_input_grad(1), false});
    if (dx.defined()) dx = dx.to(x.scalar_type());
    if (dweight.defined()) dweight = dweight.to(weight.scalar_type());
    return {dx, dweight, Variable(), Variable()};
  }
};

}  // namespace

at::Tensor convolution(const at::Tensor& x, const at::Tensor& weight, std::int64_t stride,
                       std::int64_t padding) {
  if (by_kernels(x))
    if (const at::Tensor cast = cast_by_autocast(x); in_fp32(cast.scalar_type()))
      return WidenedConvolution::apply(cast, cast_by_autocast(weight), stride, padding);
  return at::conv2d(x, weight, {}, stride, padding);
}

}  // namespace trireme::inline v0::tensor
