// Attention of some queries over keys and values that come in parts, one part after the other: the
// softmax is kept as a running maximum and a running sum (Milakov & Gimelshein 2018,
// arXiv:1805.02867; Dao et al. 2022, "FlashAttention", arXiv:2205.14135). What ring attention
// computes with. Without autograd; fp64, fp32, bf16 and fp16 (sums in fp32). One thread at a time.
// Legend: B sequences, S positions of a part, C width, H heads, D = C / H.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace trireme {
inline namespace v0 {
namespace tensor {

/// C neighbouring columns of contiguous rows [B, S, W], from `first` on; head h has D of them from
/// first + h D on.
struct Columns {
  at::Tensor rows;
  std::int64_t first = 0;
};

/// Which of a part's keys are seen: queries from `first_query` on see keys 0 ... keys - 1. Causal:
/// query i sees keys 0 ... i of them; first_query is 0 then.
struct Sight {
  std::int64_t first_query = 0, keys = 0;
  bool causal = false;
};

class PartialAttention {
 public:
  /// Scores are scaled by 1/sqrt(C/heads).
  PartialAttention(const Columns& query, std::int64_t heads, std::int64_t width);
  void add(const Columns& key, const Columns& value, const Sight& sight);
  /// Over all parts so far: [B, S, C] in the query's type. Every query has seen a key.
  at::Tensor output() const;
  /// Of every query's scaled scores so far: [B, H, S], fp32 or fp64.
  at::Tensor logsumexp() const;

 private:
  Columns query_;
  std::int64_t heads_, width_;
  at::Tensor sums_;             // [B, S, C], of e^(score - maximum) value
  at::Tensor maxima_, totals_;  // [B, H, S]
};

/// The way back, once all parts have been added: they are given again, in any order.
class PartialAttentionBackward {
 public:
  /// `output` and `logsumexp` as PartialAttention gave them; `gradient` [B, S, C] of the output.
  PartialAttentionBackward(const Columns& query, std::int64_t heads, const at::Tensor& output,
                           const at::Tensor& logsumexp, const at::Tensor& gradient);
  /// Adds to the gradients of this part's keys and values, which are fp32 (fp64 under fp64).
  void add(const Columns& key, const Columns& value, const Sight& sight,
           const Columns& key_gradient, const Columns& value_gradient);
  /// Over all parts so far: [B, S, C], fp32 (fp64 under fp64).
  const at::Tensor& query_gradient() const { return query_gradient_; }

 private:
  Columns query_;
  std::int64_t heads_;
  at::Tensor logsumexp_, gradient_;
  at::Tensor dots_;  // [B, H, S]: of a query's output and its gradient
  at::Tensor query_gradient_;
};

}  // namespace tensor
}  // namespace v0
}  // namespace trireme
