// The choice of an implementation for functions.h and PartialAttention: Trireme's kernels on the
// CPU, for some functions Trireme's kernels on NVIDIA's GPUs, else LibTorch's operations.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "trireme/tensor/functions/functions.h"
#include "trireme/tensor/functions/partial_attention.h"

namespace trireme::inline v0::tensor {

/// One part's keys and values for PartialAttention's queries.
struct AttentionPart {
  Columns query, key, value;
  Sight sight;
  std::int64_t heads = 1;
};

/// Adds a part to PartialAttention's sums, maxima and totals.
using AttendPart = void(const AttentionPart& part, const at::Tensor& sums, const at::Tensor& maxima,
                        const at::Tensor& totals);
/// Adds a part's gradients; `dots` is PartialAttentionBackward's.
using AttendPartBackward = void(const AttentionPart& part, const at::Tensor& gradient,
                                const at::Tensor& logsumexp, const at::Tensor& dots,
                                const at::Tensor& query_gradient, const Columns& key_gradient,
                                const Columns& value_gradient);

/// ConfigError unless logits [..., V] have int64 targets [...].
void check_targets(const at::Tensor& logits, const at::Tensor& targets);

/// ConfigError unless tokens are int64 and a sequence has at most as many as the table `position`
/// (may be undefined) has rows.
void check_tokens(const at::Tensor& tokens, const at::Tensor& position);

/// Whether Trireme's kernels for the CPU compute on the device of `tensor` (implementation_of()).
bool by_kernels(const at::Tensor& tensor);
/// Whether GpuKernels compute on the device of `tensor`, for functions that have such kernels.
bool by_gpu_kernels(const at::Tensor& tensor);

namespace libtorch {
decltype(tensor::linear) linear, logits, linear_gelu;
decltype(tensor::gelu_tanh) gelu_tanh;
decltype(tensor::gated) gated;
decltype(tensor::stream_layer_norm) stream_layer_norm;
decltype(tensor::attention) attention;
decltype(tensor::embedding) embedding;
decltype(tensor::add_layer_norm) add_layer_norm;
decltype(tensor::residual_add) residual_add;
decltype(tensor::cross_entropy_sum) cross_entropy_sum;
AttendPart attend_part;
AttendPartBackward attend_part_backward;
}  // namespace libtorch

namespace gpu {
decltype(tensor::cross_entropy_sum) cross_entropy_sum;
}

}  // namespace trireme::inline v0::tensor
