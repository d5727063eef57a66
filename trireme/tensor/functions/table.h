// The functions of functions.h and cross_entropy.h: by Trireme's kernels (the CPU), and by LibTorch's
// operations, which every device has, some of them by Trireme's kernels on NVIDIA's GPUs.
// functions_of() is the one place that chooses.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <utility>

#include "trireme/kernel/transformer.h"
#include "trireme/tensor/functions/partial_attention.h"

namespace trireme::inline v0::tensor {

/// One part's keys and values for PartialAttention's queries.
struct AttentionPart {
  Columns query, key, value;
  Sight sight;
  std::int64_t heads = 1;
};

struct FunctionTable {
  using Tensor = at::Tensor;
  Tensor (*linear)(const Tensor& x, const Tensor& weight, const Tensor& bias);
  Tensor (*logits)(const Tensor& x, const Tensor& weight, const Tensor& bias);
  Tensor (*linear_gelu)(const Tensor& x, const Tensor& weight, const Tensor& bias);
  Tensor (*gelu_tanh)(const Tensor& x);
  Tensor (*gated)(kernel::Gate gate, const Tensor& x);
  std::pair<Tensor, Tensor> (*stream_layer_norm)(const Tensor& stream, const Tensor& weight,
                                                 const Tensor& bias, double epsilon,
                                                 at::ScalarType out_type);
  Tensor (*attention)(const Tensor& qkv, std::int64_t heads, bool causal);
  Tensor (*embedding)(const Tensor& tokens, const Tensor& table, const Tensor& position);
  std::pair<Tensor, Tensor> (*add_layer_norm)(const Tensor& stream, const Tensor& update,
                                              const Tensor& weight, const Tensor& bias,
                                              double epsilon);
  Tensor (*residual_add)(const Tensor& stream, const Tensor& update);
  Tensor (*cross_entropy_sum)(const Tensor& logits, const Tensor& targets);
  /// Adds a part to PartialAttention's sums, maxima and totals.
  void (*attend_part)(const AttentionPart& part, const Tensor& sums, const Tensor& maxima,
                      const Tensor& totals);
  /// Adds a part's gradients; `dots` is PartialAttentionBackward's.
  void (*attend_part_backward)(const AttentionPart& part, const Tensor& gradient,
                               const Tensor& logsumexp, const Tensor& dots,
                               const Tensor& query_gradient, const Columns& key_gradient,
                               const Columns& value_gradient);
};

/// ConfigError unless logits [..., V] have int64 targets [...].
void check_targets(const at::Tensor& logits, const at::Tensor& targets);

/// ConfigError unless tokens are int64, and no more in a sequence than there are positions in the table
/// `position` (may be undefined).
void check_tokens(const at::Tensor& tokens, const at::Tensor& position);

/// The functions for the device of `tensor` (flat_math.h: implementation_of()).
const FunctionTable& functions_of(const at::Tensor& tensor);

// Each a part of the table.
namespace kernels {
at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias);
at::Tensor linear_gelu(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias);
at::Tensor gelu_tanh(const at::Tensor& x);
at::Tensor gated(kernel::Gate gate, const at::Tensor& x);
std::pair<at::Tensor, at::Tensor> stream_layer_norm(const at::Tensor& stream,
                                                    const at::Tensor& weight,
                                                    const at::Tensor& bias, double epsilon,
                                                    at::ScalarType out_type);
at::Tensor attention(const at::Tensor& qkv, std::int64_t heads, bool causal);
at::Tensor embedding(const at::Tensor& tokens, const at::Tensor& table, const at::Tensor& position);
std::pair<at::Tensor, at::Tensor> add_layer_norm(const at::Tensor& stream, const at::Tensor& update,
                                                 const at::Tensor& weight, const at::Tensor& bias,
                                                 double epsilon);
at::Tensor residual_add(const at::Tensor& stream, const at::Tensor& update);
at::Tensor cross_entropy_sum(const at::Tensor& logits, const at::Tensor& targets);
void attend_part(const AttentionPart& part, const at::Tensor& sums, const at::Tensor& maxima,
                 const at::Tensor& totals);
void attend_part_backward(const AttentionPart& part, const at::Tensor& gradient,
                          const at::Tensor& logsumexp, const at::Tensor& dots,
                          const at::Tensor& query_gradient, const Columns& key_gradient,
                          const Columns& value_gradient);
}  // namespace kernels

const FunctionTable& libtorch_functions();
const FunctionTable& gpu_functions();  // where there are GpuKernels

}  // namespace trireme::inline v0::tensor
