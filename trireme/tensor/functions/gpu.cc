// The loss on NVIDIA's GPUs in types of at most 32 bits (kernel/cuda/cross_entropy.h).
#include <ATen/ops/sum.h>

#include "trireme/kernel/cuda/cross_entropy.h"
#include "trireme/tensor/devices/gpu_kernels.h"
#include "trireme/tensor/functions/autograd.h"
#include "trireme/tensor/functions/implementations.h"

namespace trireme::inline v0::tensor {
namespace gpu {
namespace {

template <class Body>
void for_narrow_type(at::ScalarType type, Body body) {
  for_type(type, [&]<class T>() {
    if constexpr (!std::is_same_v<T, double>) body.template operator()<T>();
  });
}

// The loss of the first `width` columns of a matrix.
class LossFunction : public torch::autograd::Function<LossFunction> {
 public:
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& matrix,
                            const at::Tensor& targets, std::int64_t width) {
    const at::Tensor rows = matrix.contiguous(), ids = targets.contiguous();
    const at::Tensor logsumexp = empty_near(rows, {ids.numel()}, at::kFloat);
    const at::Tensor losses = at::empty_like(logsumexp);
    for_narrow_type(rows.scalar_type(), [&]<class T>() {
      kernel::cuda::LossRows<T> call = call_of<T>(rows, ids, width, logsumexp);
      call.losses = data_of<float>(losses);
      GpuKernels::of(rows)->run_warps("loss_forward", DTypeOf<T>::value, call, call.rows);
    });
    ctx->save_for_backward({rows, ids, logsumexp});
    ctx->saved_data["width"] = width;
    return losses.sum(at::kDouble).to(at::kFloat);
  }

  static variable_list backward(AutogradContext* ctx, variable_list gradients) {
    refuse_second_derivative();
    const auto saved = ctx->get_saved_variables();
    const at::Tensor &rows = saved[0], &ids = saved[1], &logsumexp = saved[2];
    const at::Tensor scale = gradients[0].to(at::kFloat);
    const at::Tensor dlogits = at::empty_like(rows);
    for_narrow_type(rows.scalar_type(), [&]<class T>() {
      kernel::cuda::LossRows<T> call =
          call_of<T>(rows, ids, ctx->saved_data["width"].toInt(), logsumexp);
      call.scale = data_of<float>(scale);
      call.dlogits = data_of<T>(dlogits);
      GpuKernels::of(rows)->run_warps("loss_backward", DTypeOf<T>::value, call, call.rows);
    });
    return {dlogits, Variable(), Variable()};
  }

 private:
  template <class T>
  static kernel::cuda::LossRows<T> call_of(const at::Tensor& rows, const at::Tensor& ids,
                                           std::int64_t width, const at::Tensor& logsumexp) {
    return {.logits = data_of<T>(rows),
            .targets = data_of<std::int64_t>(ids),
            .rows = count_of(ids),
            .width = static_cast<std::size_t>(width),
            .pitch = size_of_dim(rows, -1),
            .logsumexp = data_of<float>(logsumexp)};
  }
};

// Whether the gradient of a view's base has all of the view's own: also if a Function returned its
// input as it is, the result is a view of that, but the Function may change the gradient.
bool passes_its_gradient_on(const at::Tensor& view) {
  return !view.requires_grad() ||
         torch::autograd::impl::get_view_autograd_meta(view)->get_creation_meta() ==
             torch::autograd::CreationMeta::DEFAULT;
}

// Returns the matrix whose first columns the logits are (libtorch.cc: logits()), since its gradient
// needs no copy, or the logits themselves.
at::Tensor matrix_of(const at::Tensor& logits) {
  if (!logits.is_view() || !passes_its_gradient_on(logits)) return logits;
  const at::Tensor base(logits._base());
  const bool same = base.dim() == 2 && base.is_contiguous() && logits.stride(-1) == 1 &&
                    base.requires_grad() == logits.requires_grad() &&
                    base.storage_offset() == logits.storage_offset() &&
                    base.scalar_type() == logits.scalar_type() && base.size(1) >= logits.size(-1) &&
                    base.size(0) * logits.size(-1) == logits.numel();
  if (!same) return logits;
  std::int64_t apart = base.size(1);
  for (std::int64_t dim = logits.dim() - 2; dim >= 0; --dim) {
    if (logits.size(dim) != 1 && logits.stride(dim) != apart) return logits;
    apart *= logits.size(dim);
  }
  return base;
}

}  // namespace

at::Tensor cross_entropy_sum(const at::Tensor& logits, const at::Tensor& targets) {
  check_targets(logits, targets);
  return LossFunction::apply(matrix_of(logits), targets, logits.size(-1));
}

}  // namespace gpu
}  // namespace trireme::inline v0::tensor
