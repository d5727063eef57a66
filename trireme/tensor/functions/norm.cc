// Layer norm, alone or with the residual addition before it in the same pass, and residual_add.
#include <ATen/ops/sum.h>
#include <ATen/ops/zeros_like.h>

#include "trireme/kernel/cuda/norm.h"
#include "trireme/tensor/devices/gpu_kernels.h"
#include "trireme/tensor/functions/autograd.h"
#include "trireme/tensor/functions/functions.h"
#include "trireme/tensor/functions/implementations.h"

namespace trireme::inline v0::tensor {
namespace {

struct Normed {
  at::Tensor h, y, mean, rstd;
};

// Both run on the device of `where`.
template <class T>
void forward_rows(const at::Tensor& where, const kernel::NormForward<T>& call) {
  if (const GpuKernels* const gpu = GpuKernels::of(where)) {
    gpu->run_warps("norm_forward", DTypeOf<T>::value, call, call.rows);
  } else {
    kernel::transformer<T>().layer_norm(call);
  }
}
template <class T>
void backward_rows(const at::Tensor& where, const kernel::NormBackward<T>& call) {
  if (const GpuKernels* const gpu = GpuKernels::of(where)) {
    constexpr std::size_t kColumns = std::size_t{kernel::cuda::kWarp} * kernel::cuda::kPack;
    gpu->run_warps("norm_backward", DTypeOf<T>::value, call, call.rows);
    gpu->run_warps("norm_columns", DTypeOf<T>::value, call,
                   kernel::cuda::num_norm_sums(call.rows) * (call.width / kColumns + 1));
  } else {
    kernel::transformer<T>().layer_norm_backward(call);
  }
}

at::Tensor contiguous(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.contiguous() : tensor;
}

Normed run_norm(const at::Tensor& x, const at::Tensor& update, const at::Tensor& any_weight,
                const at::Tensor& any_bias, double epsilon, at::ScalarType out_type) {
  const at::Tensor weight = contiguous(any_weight), bias = contiguous(any_bias);
  TRIREME_CHECK(x.size(-1) == weight.size(0));
  const auto stat = stat_type(out_type);
  TRIREME_CHECK(x.scalar_type() == stat);
  TRIREME_CHECK(weight.scalar_type() == stat);
  if (bias.defined()) {
    TRIREME_CHECK(bias.sizes() == weight.sizes());
    TRIREME_CHECK(bias.scalar_type() == stat);
  }
  const std::int64_t rows = x.numel() / x.size(-1);
  Normed result{.h = update.defined() ? empty_near(x, x.sizes(), stat) : x,
                .y = empty_near(x, x.sizes(), out_type),
                .mean = empty_near(x, {rows}, stat),
                .rstd = empty_near(x, {rows}, stat)};
  for_type(out_type, [&]<class T>() {
    forward_rows<T>(x, {.x = data_of<Stat<T>>(x),
                        .weight = data_of<Stat<T>>(weight),
                        .bias = data_of<Stat<T>>(bias),
                        .update = data_of<T>(update),
                        .h = update.defined() ? data_of<Stat<T>>(result.h) : nullptr,
                        .y = data_of<T>(result.y),
                        .mean = data_of<Stat<T>>(result.mean),
                        .rstd = data_of<Stat<T>>(result.rstd),
                        .rows = static_cast<std::size_t>(rows),
                        .width = size_of_dim(x, -1),
                        .epsilon = epsilon});
  });
  return result;
}

// Gradients of (x, update, weight, bias). `dstream`: h's gradient from other uses, or undefined.
variable_list run_norm_backward(AutogradContext* ctx, const at::Tensor& dy,
                                const at::Tensor& dstream, bool with_update) {
  const auto saved = ctx->get_saved_variables();
  const at::Tensor &h = saved[0], &mean = saved[2], &rstd = saved[3];
  const at::Tensor weight = saved[1].contiguous();
  const bool with_bias = ctx->saved_data["bias"].toBool();
  const auto type = static_cast<at::ScalarType>(ctx->saved_data["type"].toInt());
  // If both have the same type, the update's gradient is the stream's tensor.
  const bool own_update = with_update && type != h.scalar_type();
  const at::Tensor dx = empty_near(h, h.sizes(), h.scalar_type());
  const at::Tensor dupdate = own_update ? empty_near(h, h.sizes(), type) : at::Tensor();
  // The CPU's kernel adds all rows up; GPUs' kernels write one row of sums for several rows of h.
  const bool on_gpu = GpuKernels::of(h) != nullptr;
  const auto rows = static_cast<std::int64_t>(on_gpu ? kernel::cuda::num_norm_sums(count_of(mean))
                                                     : std::size_t{1});
  const at::Tensor dweight = at::zeros({rows, h.size(-1)}, weight.options());
  const at::Tensor dbias = with_bias ? at::zeros_like(dweight) : at::Tensor();
  for_type(type, [&]<class T>() {
    backward_rows<T>(h, {.dy = data_of<T>(dy),
                         .dstream = data_of<Stat<T>>(dstream),
                         .h = data_of<Stat<T>>(h),
                         .weight = data_of<Stat<T>>(weight),
                         .mean = data_of<Stat<T>>(mean),
                         .rstd = data_of<Stat<T>>(rstd),
                         .dx = data_of<Stat<T>>(dx),
                         .dupdate = data_of<T>(dupdate),
                         .dweight = data_of<Stat<T>>(dweight),
                         .dbias = data_of<Stat<T>>(dbias),
                         .rows = count_of(mean),
                         .width = size_of_dim(h, -1)});
  });
  const auto sum_of = [&](const at::Tensor& sums) {
    return on_gpu && sums.defined() ? sums.sum(0) : sums.defined() ? sums[0] : sums;
  };
  return {dx,
          own_update    ? dupdate
          : with_update ? dx
                        : at::Tensor(),
          sum_of(dweight), sum_of(dbias)};
}

void remember(AutogradContext* ctx, const Normed& normed, const at::Tensor& weight, bool with_bias,
              at::ScalarType type) {
  ctx->save_for_backward({normed.h, weight, normed.mean, normed.rstd});
  ctx->saved_data["bias"] = with_bias;
  ctx->saved_data["type"] = static_cast<std::int64_t>(type);
}

class NormFunction : public torch::autograd::Function<NormFunction> {
 public:
  static variable_list forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& weight,
                               const std::optional<at::Tensor>& bias, double epsilon,
                               std::int64_t out_type) {
    const auto type = static_cast<at::ScalarType>(out_type);
    const Normed normed = run_norm(x.contiguous(), {}, weight, or_undefined(bias), epsilon, type);
    ctx->set_materialize_grads(false);
    remember(ctx, normed, weight, bias.has_value(), type);
    return {x, normed.y};
  }
  static variable_list backward(AutogradContext* ctx, variable_list gradients) {
    refuse_second_derivative();
    if (!gradients[1].defined())
      return {gradients[0], Variable(), Variable(), Variable(), Variable()};
    auto all = run_norm_backward(ctx, gradients[1].contiguous(), contiguous(gradients[0]), false);
    return {all[0], all[2], all[3], Variable(), Variable()};
  }
};

class AddNormFunction : public torch::autograd::Function<AddNormFunction> {
 public:
  static variable_list forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& update,
                               const at::Tensor& weight, const std::optional<at::Tensor>& bias,
                               double epsilon) {
    TRIREME_CHECK(x.sizes() == update.sizes());
    const Normed normed = run_norm(x.contiguous(), update.contiguous(), weight, or_undefined(bias),
                                   epsilon, update.scalar_type());
    remember(ctx, normed, weight, bias.has_value(), update.scalar_type());
    return {normed.h, normed.y};
  }
  static variable_list backward(AutogradContext* ctx, variable_list gradients) {
    refuse_second_derivative();
    auto all = run_norm_backward(ctx, gradients[1].contiguous(), contiguous(gradients[0]), true);
    return {all[0], all[1], all[2], all[3], Variable()};
  }
};

class AddFunction : public torch::autograd::Function<AddFunction> {
 public:
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& stream,
                            const at::Tensor& update) {
    TRIREME_CHECK(stream.sizes() == update.sizes());
    TRIREME_CHECK(stream.scalar_type() == stat_type(update.scalar_type()));
    const at::Tensor a = stream.contiguous(), b = update.contiguous();
    const at::Tensor out = empty(a.sizes(), a.scalar_type());
    for_type(b.scalar_type(), [&]<class T>() {
      kernel::transformer<T>().add(data_of<Stat<T>>(a), data_of<T>(b), data_of<Stat<T>>(out),
                                   count_of(out));
    });
    ctx->saved_data["type"] = static_cast<std::int64_t>(b.scalar_type());
    return out;
  }
  static variable_list backward(AutogradContext* ctx, variable_list gradients) {
    refuse_second_derivative();
    const at::Tensor dstream = gradients[0].contiguous();
    const auto type = static_cast<at::ScalarType>(ctx->saved_data["type"].toInt());
    return {dstream, narrowed(dstream, type)};
  }
};

// Whether the kernels of this file compute, on the CPU or on a GPU.
bool has_kernels(const at::Tensor& stream) { return by_kernels(stream) || by_gpu_kernels(stream); }

}  // namespace

at::Tensor layer_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                      double epsilon, at::ScalarType out_type) {
  return stream_layer_norm(x, weight, bias, epsilon, out_type).second;
}

std::pair<at::Tensor, at::Tensor> stream_layer_norm(const at::Tensor& stream,
                                                    const at::Tensor& weight,
                                                    const at::Tensor& bias, double epsilon,
                                                    at::ScalarType out_type) {
  if (!has_kernels(stream))
    return libtorch::stream_layer_norm(stream, weight, bias, epsilon, out_type);
  auto outputs = NormFunction::apply(stream, weight, maybe(bias), epsilon,
                                     static_cast<std::int64_t>(out_type));
  return {outputs[0], outputs[1]};
}

std::pair<at::Tensor, at::Tensor> add_layer_norm(const at::Tensor& stream, const at::Tensor& update,
                                                 const at::Tensor& weight, const at::Tensor& bias,
                                                 double epsilon) {
  if (!has_kernels(stream)) return libtorch::add_layer_norm(stream, update, weight, bias, epsilon);
  auto outputs = AddNormFunction::apply(stream, update, weight, maybe(bias), epsilon);
  return {outputs[0], outputs[1]};
}

at::Tensor residual_add(const at::Tensor& stream, const at::Tensor& update) {
  return by_kernels(stream) ? AddFunction::apply(stream, update)
                            : libtorch::residual_add(stream, update);
}

}  // namespace trireme::inline v0::tensor
