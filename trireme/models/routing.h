// Routing of a mixture's tokens: each token chooses its top_k most probable experts (Shazeer et al.
// 2017, arXiv:1701.06538; Switch, Fedus et al. 2021, arXiv:2101.03961). Each expert accepts at most
// `capacity` choices of a sequence and drops the others. Each sequence is routed by itself (GShard,
// Lepikhin et al. 2020, arXiv:2006.16668), so the result depends neither on other sequences nor on
// the number of ranks. Pure functions.
// Legend: B sequences, T positions, E experts.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace trireme::inline v0::models {

struct Routing {
  /// int64 [B T, top_k]: the chosen experts, most probable first; ties go to the lower number.
  at::Tensor chosen;
  /// int64: the accepted choices, each as token * top_k + its index in `chosen`, where token = b T
  /// + t. Ordered by expert, sequence, rank of the choice (first choices before second ones) and
  /// position. Choices are accepted in that order until the expert's capacity is used up.
  at::Tensor places;
  std::vector<std::int64_t> counts;  // [E]: of `places`
  at::Tensor load;                   // int64 [B, E]: choices, accepted or dropped
  std::int64_t dropped = 0;          // choices that were not accepted
};

/// `probabilities` [B, T, E], without autograd. 1 <= top_k <= E, capacity >= 0.
Routing route(const at::Tensor& probabilities, int top_k, std::int64_t capacity);

/// The choices of a sequence that an expert accepts: factor top_k T / E, rounded up; at most T.
std::int64_t capacity_of(std::int64_t length, int experts, int top_k, double factor);

/// The rows that an expert computes for `count` tokens: a positive multiple of 16, padded with
/// zeros. oneDNN generates code for each shape of a product and keeps it (about 0.3 MB); without
/// padding nearly every routing would bring a new shape.
std::int64_t computed_rows(std::int64_t count);

}  // namespace trireme::inline v0::models
