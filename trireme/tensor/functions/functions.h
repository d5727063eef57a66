// Our autograd functions: the pieces of a transformer, and convolutions. Each is one node of the
// graph with its own backward (in this folder), in fp64, fp32, bf16 and fp16.
//
// In bf16 and fp16, products take 16-bit operands and sum in fp32; norms, softmax and losses
// compute in fp32 and residual streams stay fp32, as under PyTorch's autocast. With one kernel
// thread a result depends on its inputs' values only. Throws CheckFailure if shapes disagree, and
// ConfigError if second derivatives are asked for (second_derivative.h). Thread safe.
// Legend: B sequences (or images), T positions, C width, V vocabulary.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <utility>

#include "trireme/kernel/transformer.h"
#include "trireme/tensor/scoped_value.h"

namespace trireme::inline v0::tensor {

/// x [..., in] times weight [out, in] transposed, plus bias [out] (in the weight's type; may be
/// undefined): [..., out] in the weight's type, or in autocast's while it is enabled. x may be wider
/// (fp32 into a bf16 layer): it is rounded first.
at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias);

/// linear() whose `weight` has one row per word of a vocabulary: the layer before
/// cross_entropy_sum(). On a device the result may be the first columns of a wider matrix.
at::Tensor logits(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias);

/// x [B, in, H, W] convolved with weight [out, in, K, K] of the same type, without a bias; both are
/// cast to autocast's type first while it is enabled. On the CPU in fp16, and in bf16 where the
/// kernel table says Widened, the operands are converted to fp32, and the result and the gradients
/// are rounded once.
at::Tensor convolution(const at::Tensor& x, const at::Tensor& weight, std::int64_t stride,
                       std::int64_t padding);

/// gelu(linear(x)), tanh form (Hendrycks & Gimpel 2016, arXiv:1606.08415).
at::Tensor linear_gelu(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias);

/// x * 0.5 * (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))).
at::Tensor gelu_tanh(const at::Tensor& x);

/// g(a) * b, where x [..., 2 C] is a and b side by side: [..., C] (kernel/transformer.h).
at::Tensor gated(kernel::Gate gate, const at::Tensor& x);

/// Layer norm over the last dim (Ba et al. 2016, arXiv:1607.06450); weight and bias (may be
/// undefined) [C] in x's type, fp32 or fp64; the result has type `out_type`.
at::Tensor layer_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                      double epsilon, at::ScalarType out_type);

/// A residual stream itself and its layer_norm(): backward adds the gradients of both in one pass.
std::pair<at::Tensor, at::Tensor> stream_layer_norm(const at::Tensor& stream,
                                                    const at::Tensor& weight,
                                                    const at::Tensor& bias, double epsilon,
                                                    at::ScalarType out_type);

/// Longest sequence whose probabilities attention keeps for backward; beyond it recomputes them.
inline constexpr std::int64_t kKeptProbabilities = 512;

/// While it lives, this thread's attention keeps probabilities as above (`keep`), or never.
struct ProbabilitiesScope : ScopedValue<bool> {
  explicit ProbabilitiesScope(bool keep);
};

/// Attention of `heads` heads over qkv [B, T, 3C] (query, key, value side by side): [B, T, C],
/// scaled by 1/sqrt(C/heads); flash form (Dao et al. 2022, arXiv:2205.14135). Unless it is
/// `causal`, every position sees all T.
at::Tensor attention(const at::Tensor& qkv, std::int64_t heads, bool causal);

/// tokens int64 [B, T] into table [V, C], plus position [>=T, C] row t (may be undefined): [B, T,
/// C] in fp32 (fp64 for fp64 tables). ConfigError for tokens of another type, sequences for which
/// `position` has too few rows and, on the CPU, a token outside 0 ... V-1.
at::Tensor embedding(const at::Tensor& tokens, const at::Tensor& table, const at::Tensor& position);

/// h = stream + update and layer_norm(h) in the update's type, in one pass: {h, norm}.
std::pair<at::Tensor, at::Tensor> add_layer_norm(const at::Tensor& stream, const at::Tensor& update,
                                                 const at::Tensor& weight, const at::Tensor& bias,
                                                 double epsilon);

/// stream + update in the stream's type (fp32 stream, bf16 update: no copy of the update).
at::Tensor residual_add(const at::Tensor& stream, const at::Tensor& update);

/// The loss of language models, in one pass over the logits: the sum over tokens of -log
/// softmax(logits)[target]. `logits` [..., V] (fp32 computes for bf16 and fp16), `targets` int64
/// [...]; negative targets are ignored. Returns a scalar, fp32 (fp64 for fp64 logits). ConfigError
/// if shapes disagree, and on the CPU if a target is not below V.
at::Tensor cross_entropy_sum(const at::Tensor& logits, const at::Tensor& targets);

}  // namespace trireme::inline v0::tensor
