#include "trireme/tensor/functions/implementations.h"

#include "trireme/tensor/devices/gpu_kernels.h"
#include "trireme/tensor/flat_math.h"

namespace trireme::inline v0::tensor {
namespace {

bool by_gpu_kernels(const at::Tensor& tensor) {
  return !by_kernels(tensor) && tensor.scalar_type() != at::kDouble &&
         GpuKernels::of(tensor) != nullptr;
}

}  // namespace

bool by_kernels(const at::Tensor& tensor) {
  return implementation_of(tensor) == Implementation::Kernels;
}

at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  return (by_kernels(x) ? kernels::linear : libtorch::linear)(x, weight, bias);
}

at::Tensor logits(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  return (by_kernels(x) ? kernels::linear : libtorch::logits)(x, weight, bias);
}

at::Tensor linear_gelu(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  return (by_kernels(x) ? kernels::linear_gelu : libtorch::linear_gelu)(x, weight, bias);
}

at::Tensor gelu_tanh(const at::Tensor& x) {
  return (by_kernels(x) ? kernels::gelu_tanh : libtorch::gelu_tanh)(x);
}

at::Tensor gated(kernel::Gate gate, const at::Tensor& x) {
  return (by_kernels(x) ? kernels::gated : libtorch::gated)(gate, x);
}

at::Tensor layer_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                      double epsilon, at::ScalarType out_type) {
  return stream_layer_norm(x, weight, bias, epsilon, out_type).second;
}

std::pair<at::Tensor, at::Tensor> stream_layer_norm(const at::Tensor& stream,
                                                    const at::Tensor& weight,
                                                    const at::Tensor& bias, double epsilon,
                                                    at::ScalarType out_type) {
  const bool ours = by_kernels(stream) || by_gpu_kernels(stream);
  return (ours ? kernels::stream_layer_norm : libtorch::stream_layer_norm)(stream, weight, bias,
                                                                           epsilon, out_type);
}

at::Tensor attention(const at::Tensor& qkv, std::int64_t heads, bool causal) {
  return (by_kernels(qkv) ? kernels::attention : libtorch::attention)(qkv, heads, causal);
}

at::Tensor embedding(const at::Tensor& tokens, const at::Tensor& table,
                     const at::Tensor& position) {
  return (by_kernels(table) ? kernels::embedding : libtorch::embedding)(tokens, table, position);
}

std::pair<at::Tensor, at::Tensor> add_layer_norm(const at::Tensor& stream, const at::Tensor& update,
                                                 const at::Tensor& weight, const at::Tensor& bias,
                                                 double epsilon) {
  const bool ours = by_kernels(stream) || by_gpu_kernels(stream);
  return (ours ? kernels::add_layer_norm : libtorch::add_layer_norm)(stream, update, weight, bias,
                                                                     epsilon);
}

at::Tensor residual_add(const at::Tensor& stream, const at::Tensor& update) {
  return (by_kernels(stream) ? kernels::residual_add : libtorch::residual_add)(stream, update);
}

at::Tensor cross_entropy_sum(const at::Tensor& logits, const at::Tensor& targets) {
  if (by_gpu_kernels(logits)) return gpu::cross_entropy_sum(logits, targets);
  return (by_kernels(logits) ? kernels::cross_entropy_sum : libtorch::cross_entropy_sum)(logits,
                                                                                         targets);
}

}  // namespace trireme::inline v0::tensor
