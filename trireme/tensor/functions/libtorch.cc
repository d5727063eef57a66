// The functions by LibTorch's operations (cuBLAS, cuDNN, flash attention on CUDA).
#include <ATen/Functions.h>

#include "trireme/base/check.h"
#include "trireme/base/error.h"
#include "trireme/tensor/functions/table.h"
#include "trireme/tensor/functions/typed.h"

namespace trireme::inline v0::tensor {
namespace libtorch {
namespace {

std::optional<at::Tensor> in_type(const at::Tensor& tensor, at::ScalarType type) {
  return tensor.defined() ? std::optional<at::Tensor>(tensor.to(type)) : std::nullopt;
}

at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  return at::linear(x.to(weight.scalar_type()), weight, maybe(bias));
}

at::Tensor gelu_tanh(const at::Tensor& x) { return at::gelu(x, "tanh"); }

at::Tensor linear_gelu(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  return gelu_tanh(linear(x, weight, bias));
}

at::Tensor gated(kernel::Gate gate, const at::Tensor& x) {
  TRIREME_CHECK(x.size(-1) % 2 == 0);
  const std::vector<at::Tensor> halves = x.chunk(2, -1);
  return (gate == kernel::Gate::Silu ? at::silu(halves[0]) : gelu_tanh(halves[0])) * halves[1];
}

at::Tensor layer_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                      double epsilon, at::ScalarType out_type) {
  const auto stat = stat_type(x.scalar_type());
  return at::layer_norm(x.to(stat), {x.size(-1)}, in_type(weight, stat), in_type(bias, stat),
                        epsilon)
      .to(out_type);
}

at::Tensor attention(const at::Tensor& qkv, std::int64_t heads, bool causal) {
  TRIREME_CHECK(qkv.dim() == 3);
  TRIREME_CHECK(qkv.size(2) % (3 * heads) == 0);
  const std::int64_t batch = qkv.size(0), length = qkv.size(1), width = qkv.size(2) / 3;
  const at::Tensor parts =
      qkv.view({batch, length, 3, heads, width / heads}).permute({2, 0, 3, 1, 4});
  return at::scaled_dot_product_attention(parts[0], parts[1], parts[2], {}, 0.0, causal)
      .transpose(1, 2)
      .reshape({batch, length, width});
}

at::Tensor embedding(const at::Tensor& tokens, const at::Tensor& table,
                     const at::Tensor& position) {
  const auto stat = stat_type(table.scalar_type());
  const at::Tensor rows = at::embedding(table, tokens).to(stat);
  if (!position.defined()) return rows;
  TRIREME_CHECK(tokens.size(-1) <= position.size(0));
  return rows + position.narrow(0, 0, tokens.size(-1)).to(stat);
}

at::Tensor residual_add(const at::Tensor& stream, const at::Tensor& update) {
  TRIREME_CHECK(stream.numel() == update.numel());
  return stream + update.to(stream.scalar_type());
}

std::pair<at::Tensor, at::Tensor> add_layer_norm(const at::Tensor& stream, const at::Tensor& update,
                                                 const at::Tensor& weight, const at::Tensor& bias,
                                                 double epsilon) {
  const at::Tensor h = residual_add(stream, update);
  return {h, layer_norm(h, weight, bias, epsilon, update.scalar_type())};
}

// A target that is not below V stops the device: reading it here would wait for it.
at::Tensor cross_entropy_sum(const at::Tensor& logits, const at::Tensor& targets) {
  if (logits.numel() != targets.numel() * logits.size(-1) || targets.scalar_type() != at::kLong)
    throw ConfigError(
        "the loss got targets of another shape or type than its logits ask for",
        {.operation = "cross_entropy", .advice = "Logits [..., V] take int64 targets [...]."});
  constexpr std::int64_t kIgnored = -1;
  return at::cross_entropy_loss(
      logits.reshape({-1, logits.size(-1)}).to(stat_type(logits.scalar_type())),
      targets.reshape({-1}).clamp_min(kIgnored), {}, at::Reduction::Sum, kIgnored);
}

}  // namespace
}  // namespace libtorch

const FunctionTable& libtorch_functions() {
  static constexpr FunctionTable table{.linear = libtorch::linear,
                                       .linear_gelu = libtorch::linear_gelu,
                                       .gelu_tanh = libtorch::gelu_tanh,
                                       .gated = libtorch::gated,
                                       .layer_norm = libtorch::layer_norm,
                                       .attention = libtorch::attention,
                                       .embedding = libtorch::embedding,
                                       .add_layer_norm = libtorch::add_layer_norm,
                                       .residual_add = libtorch::residual_add,
                                       .cross_entropy_sum = libtorch::cross_entropy_sum};
  return table;
}

}  // namespace trireme::inline v0::tensor
