// Attention of queries over keys and values that arrive in parts, as in ring attention. The softmax
// is kept as a running maximum and a running sum (Milakov & Gimelshein 2018, arXiv:1805.02867; Dao
// et al. 2022, "FlashAttention", arXiv:2205.14135). Without autograd; fp64, fp32, bf16 and fp16
// (sums in fp32). Use an object from one thread at a time.
// Legend: B sequences, S positions of a part, C width, H heads, D = C / H.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace trireme::inline v0::tensor {

/// C neighbouring columns of contiguous rows [B, S, W], starting at `first`. Head h has the D
/// columns from first + h D on.
struct Columns {
  at::Tensor rows;
  std::int64_t first = 0;
};

/// Which keys of a part are visible: queries from `first_query` on see keys 0 ... keys - 1. Causal:
/// query i sees keys 0 ... i of them, and first_query is 0.
struct Sight {
  std::int64_t first_query = 0, keys = 0;
  bool causal = false;
};

class PartialAttention {
 public:
  /// Scores are scaled by 1/sqrt(C/heads).
  PartialAttention(const Columns& query, std::int64_t heads, std::int64_t width);
  void add(const Columns& key, const Columns& value, const Sight& sight);
  /// Result over all parts so far: [B, S, C] in the query's type. Every query must have seen a key.
  at::Tensor output() const;
  /// The logsumexp of each query's scaled scores so far: [B, H, S], fp32 or fp64.
  at::Tensor logsumexp() const;

 private:
  Columns query_;
  std::int64_t heads_, width_;
  at::Tensor sums_;             // [B, S, C]: sums of e^(score - maximum) value
  at::Tensor maxima_, totals_;  // [B, H, S]
};

/// The backward pass. After all parts were added forward, they are given again, in any order.
class PartialAttentionBackward {
 public:
  /// `output` and `logsumexp` as PartialAttention gave them; `gradient` [B, S, C] of the output.
  PartialAttentionBackward(const Columns& query, std::int64_t heads, const at::Tensor& output,
                           const at::Tensor& logsumexp, const at::Tensor& gradient);
  /// Adds to the gradients of this part's keys and values, which are fp32 (fp64 under fp64).
  void add(const Columns& key, const Columns& value, const Sight& sight,
           const Columns& key_gradient, const Columns& value_gradient);
  /// Sum over all parts so far: [B, S, C], fp32 (fp64 under fp64).
  const at::Tensor& query_gradient() const { return query_gradient_; }

 private:
  Columns query_;
  std::int64_t heads_;
  at::Tensor logsumexp_, gradient_;
  at::Tensor dots_;  // [B, H, S]: dot product of a query's output and its gradient
  at::Tensor query_gradient_;
};

}  // namespace trireme::inline v0::tensor
