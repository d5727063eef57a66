// Linear layers and GELU: one graph node each, no transposed copies.
#include <ATen/ops/_unsafe_view.h>
#include <ATen/ops/sum.h>

#include "trireme/tensor/functions/autograd.h"
#include "trireme/tensor/functions/deferred.h"
#include "trireme/tensor/functions/functions.h"
#include "trireme/tensor/functions/implementations.h"
#include "trireme/tensor/products/gemm.h"

namespace trireme::inline v0::tensor {
namespace {

at::Tensor run_gelu(const at::Tensor& x) {
  at::Tensor y = empty(x.sizes(), x.scalar_type());
  for_type(x.scalar_type(), [&]<class T>() {
    kernel::transformer<T>().gelu(data_of<T>(x), data_of<T>(y), count_of(x));
  });
  return y;
}

at::Tensor run_gelu_backward(const at::Tensor& x, const at::Tensor& dy) {
  at::Tensor dx = empty(x.sizes(), x.scalar_type());
  for_type(x.scalar_type(), [&]<class T>() {
    kernel::transformer<T>().gelu_backward(data_of<T>(x), data_of<T>(dy), data_of<T>(dx),
                                           count_of(x));
  });
  return dx;
}

class LinearFunction : public torch::autograd::Function<LinearFunction> {
 public:
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& weight,
                            const std::optional<at::Tensor>& bias, bool gelu) {
    const auto in = weight.size(1), out = weight.size(0);
    TRIREME_CHECK(x.size(-1) == in);
    if (bias) TRIREME_CHECK(bias->scalar_type() == weight.scalar_type());
    const at::Tensor rows = x.to(weight.scalar_type()).reshape({-1, in});
    const at::Tensor product = linear_forward(rows, weight, or_undefined(bias));
    ctx->save_for_backward({rows, weight, gelu ? product : at::Tensor(), or_undefined(bias)});
    ctx->saved_data["bias"] = bias.has_value();
    ctx->saved_data["type"] = static_cast<std::int64_t>(x.scalar_type());
    std::vector<std::int64_t> sizes = x.sizes().vec();
    ctx->saved_data["sizes"] = sizes;
    sizes.back() = out;
    // Autograd refuses changes in place of views that a Function returns.
    return at::_unsafe_view(gelu ? run_gelu(product) : product, sizes);
  }

  static variable_list backward(AutogradContext* ctx, variable_list gradients) {
    refuse_second_derivative();
    const auto saved = ctx->get_saved_variables();
    const at::Tensor &rows = saved[0], &weight = saved[1], &product = saved[2];
    at::Tensor dy = gradients[0].contiguous().view({-1, weight.size(0)});
    if (product.defined()) dy = run_gelu_backward(product, dy);
    at::Tensor dx, dweight, dbias;
    if (ctx->needs_input_grad(0)) {
      dx = linear_input_gradient(dy, weight)
               .view(ctx->saved_data["sizes"].toIntVector())
               .to(static_cast<at::ScalarType>(ctx->saved_data["type"].toInt()));
    }
    const bool has_bias = ctx->saved_data["bias"].toBool();
    auto* const deferred = deferred_gradients();
    // A computed weight's gradient is not deferred: the node that computed the weight needs it now.
    if (deferred != nullptr && weight.is_leaf() && (!has_bias || saved[3].is_leaf())) {
      if (ctx->needs_input_grad(1))
        deferred->push_back(
            {leaf_itself(weight), [dy, rows] { return linear_weight_gradient(dy, rows); }});
      if (has_bias && ctx->needs_input_grad(2))
        deferred->push_back({leaf_itself(saved[3]), [dy] { return at::sum(dy, 0); }});
      return {dx, dweight, dbias, Variable()};
    }
    if (ctx->needs_input_grad(1)) dweight = linear_weight_gradient(dy, rows);
    if (has_bias && ctx->needs_input_grad(2)) dbias = at::sum(dy, 0);
    return {dx, dweight, dbias, Variable()};
  }
};

class GeluFunction : public torch::autograd::Function<GeluFunction> {
 public:
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x) {
    const at::Tensor packed = x.contiguous();
    ctx->save_for_backward({packed});
    return run_gelu(packed);
  }
  static variable_list backward(AutogradContext* ctx, variable_list gradients) {
    refuse_second_derivative();
    return {run_gelu_backward(ctx->get_saved_variables()[0], gradients[0].contiguous())};
  }
};

class GatedFunction : public torch::autograd::Function<GatedFunction> {
 public:
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, std::int64_t gate) {
    TRIREME_CHECK(x.size(-1) % 2 == 0);
    const at::Tensor packed = x.contiguous();
    ctx->save_for_backward({packed});
    ctx->saved_data["gate"] = gate;
    std::vector<std::int64_t> sizes = x.sizes().vec();
    sizes.back() /= 2;
    at::Tensor y = empty(sizes, x.scalar_type());
    for_type(x.scalar_type(), [&]<class T>() {
      kernel::transformer<T>().gated(static_cast<kernel::Gate>(gate), data_of<T>(packed),
                                     data_of<T>(y), count_of(y) / size_of_dim(y, -1),
                                     size_of_dim(y, -1));
    });
    return y;
  }
  static variable_list backward(AutogradContext* ctx, variable_list gradients) {
    refuse_second_derivative();
    const at::Tensor x = ctx->get_saved_variables()[0], dy = gradients[0].contiguous();
    at::Tensor dx = empty(x.sizes(), x.scalar_type());
    for_type(x.scalar_type(), [&]<class T>() {
      kernel::transformer<T>().gated_backward(
          static_cast<kernel::Gate>(ctx->saved_data["gate"].toInt()), data_of<T>(x), data_of<T>(dy),
          data_of<T>(dx), count_of(dy) / size_of_dim(dy, -1), size_of_dim(dy, -1));
    });
    return {dx, Variable()};
  }
};

at::Tensor run_linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                      bool gelu) {
  return LinearFunction::apply(cast_by_autocast(x), cast_by_autocast(weight),
                               maybe(cast_by_autocast(bias)), gelu);
}

}  // namespace

at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  return by_kernels(x) ? run_linear(x, weight, bias, false) : libtorch::linear(x, weight, bias);
}

at::Tensor logits(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  return by_kernels(x) ? run_linear(x, weight, bias, false) : libtorch::logits(x, weight, bias);
}

at::Tensor linear_gelu(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  return by_kernels(x) ? run_linear(x, weight, bias, true) : libtorch::linear_gelu(x, weight, bias);
}

at::Tensor gelu_tanh(const at::Tensor& x) {
  return by_kernels(x) ? GeluFunction::apply(x) : libtorch::gelu_tanh(x);
}

at::Tensor gated(kernel::Gate gate, const at::Tensor& x) {
  return by_kernels(x) ? GatedFunction::apply(x, static_cast<std::int64_t>(gate))
                       : libtorch::gated(gate, x);
}

}  // namespace trireme::inline v0::tensor
