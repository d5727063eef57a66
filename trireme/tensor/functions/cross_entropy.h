// Token cross-entropy, summed: the loss of language models, in one pass over the logits.
#pragma once

#include <ATen/core/Tensor.h>

namespace trireme::inline v0::tensor {

/// The sum over tokens of -log softmax(logits)[target], under autograd. `logits` [..., V] in fp64,
/// fp32 or bf16 (computed in fp32), `targets` int64 [...]; negative targets are ignored. Returns a
/// scalar, fp32 (fp64 for fp64 logits). ConfigError if shapes disagree or a target is not below V.
at::Tensor cross_entropy_sum(const at::Tensor& logits, const at::Tensor& targets);

}  // namespace trireme::inline v0::tensor
