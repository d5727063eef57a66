#include "trireme/tensor/functions/table.h"

#include "trireme/tensor/devices/gpu_kernels.h"
#include "trireme/tensor/flat_math.h"
#include "trireme/tensor/functions/cross_entropy.h"
#include "trireme/tensor/functions/functions.h"

namespace trireme::inline v0::tensor {
namespace {

constexpr FunctionTable kKernels{.linear = kernels::linear,
                                 .logits = kernels::linear,
                                 .linear_gelu = kernels::linear_gelu,
                                 .gelu_tanh = kernels::gelu_tanh,
                                 .gated = kernels::gated,
                                 .stream_layer_norm = kernels::stream_layer_norm,
                                 .attention = kernels::attention,
                                 .embedding = kernels::embedding,
                                 .add_layer_norm = kernels::add_layer_norm,
                                 .residual_add = kernels::residual_add,
                                 .cross_entropy_sum = kernels::cross_entropy_sum,
                                 .attend_part = kernels::attend_part,
                                 .attend_part_backward = kernels::attend_part_backward};

}  // namespace

const FunctionTable& functions_of(const at::Tensor& tensor) {
  if (implementation_of(tensor) == Implementation::Kernels) return kKernels;
  return GpuKernels::of(tensor) != nullptr ? gpu_functions() : libtorch_functions();
}

at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  return functions_of(x).linear(x, weight, bias);
}

at::Tensor logits(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  return functions_of(x).logits(x, weight, bias);
}

at::Tensor linear_gelu(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  return functions_of(x).linear_gelu(x, weight, bias);
}

at::Tensor gelu_tanh(const at::Tensor& x) { return functions_of(x).gelu_tanh(x); }

at::Tensor gated(kernel::Gate gate, const at::Tensor& x) { return functions_of(x).gated(gate, x); }

at::Tensor layer_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                      double epsilon, at::ScalarType out_type) {
  return stream_layer_norm(x, weight, bias, epsilon, out_type).second;
}

std::pair<at::Tensor, at::Tensor> stream_layer_norm(const at::Tensor& stream,
                                                    const at::Tensor& weight,
                                                    const at::Tensor& bias, double epsilon,
                                                    at::ScalarType out_type) {
  return functions_of(stream).stream_layer_norm(stream, weight, bias, epsilon, out_type);
}

at::Tensor causal_attention(const at::Tensor& qkv, std::int64_t heads) {
  return functions_of(qkv).attention(qkv, heads, true);
}

at::Tensor bidirectional_attention(const at::Tensor& qkv, std::int64_t heads) {
  return functions_of(qkv).attention(qkv, heads, false);
}

at::Tensor embedding(const at::Tensor& tokens, const at::Tensor& table,
                     const at::Tensor& position) {
  return functions_of(table).embedding(tokens, table, position);
}

std::pair<at::Tensor, at::Tensor> add_layer_norm(const at::Tensor& stream, const at::Tensor& update,
                                                 const at::Tensor& weight, const at::Tensor& bias,
                                                 double epsilon) {
  return functions_of(stream).add_layer_norm(stream, update, weight, bias, epsilon);
}

at::Tensor residual_add(const at::Tensor& stream, const at::Tensor& update) {
  return functions_of(stream).residual_add(stream, update);
}

at::Tensor cross_entropy_sum(const at::Tensor& logits, const at::Tensor& targets) {
  return functions_of(logits).cross_entropy_sum(logits, targets);
}

}  // namespace trireme::inline v0::tensor
