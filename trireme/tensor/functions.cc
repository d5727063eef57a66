#include "trireme/tensor/functions.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/scaled_dot_product_attention.h>

#include <optional>

#include "trireme/base/check.h"

namespace trireme {
inline namespace v0 {
namespace tensor {
namespace {
std::optional<at::Tensor> maybe(const at::Tensor& tensor) {
  return tensor.defined() ? std::optional<at::Tensor>(tensor) : std::nullopt;
}
}  // namespace

at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  return at::linear(x.to(weight.scalar_type()), weight, maybe(bias));
}

at::Tensor linear_gelu(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  return gelu_tanh(linear(x, weight, bias));
}

at::Tensor gelu_tanh(const at::Tensor& x) { return at::gelu(x, "tanh"); }

at::Tensor layer_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                      double epsilon, at::ScalarType out_type) {
  return at::layer_norm(x, {x.size(-1)}, maybe(weight), maybe(bias), epsilon).to(out_type);
}

at::Tensor causal_attention(const at::Tensor& qkv, std::int64_t heads) {
  const auto batch = qkv.size(0), length = qkv.size(1), width = qkv.size(2) / 3;
  const at::Tensor split =
      qkv.view({batch, length, 3, heads, width / heads}).permute({2, 0, 3, 1, 4});
  return at::scaled_dot_product_attention(split[0], split[1], split[2], {}, 0.0, true)
      .transpose(1, 2)
      .reshape({batch, length, width});
}

at::Tensor embedding(const at::Tensor& tokens, const at::Tensor& table, const at::Tensor& position,
                     at::ScalarType out_type) {
  at::Tensor rows = at::embedding(table, tokens).to(out_type);
  if (!position.defined()) return rows;
  TRIREME_CHECK(tokens.size(-1) <= position.size(0));
  return rows + position.narrow(0, 0, tokens.size(-1)).to(out_type);
}

at::Tensor residual_add(const at::Tensor& stream, const at::Tensor& update) {
  return stream + update;
}

}  // namespace tensor
}  // namespace v0
}  // namespace trireme
