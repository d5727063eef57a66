// Which tokens a mixture's experts get: each token goes to its top_k most probable experts (Shazeer
// et al. 2017, arXiv:1701.06538; Fedus et al. 2021, "Switch", arXiv:2101.03961), of which each
// takes `capacity` choices of a sequence and no more. A sequence is a group of its own (GShard,
// Lepikhin et al. 2020, arXiv:2006.16668), so its tokens' fate depends on no other sequence, and on
// no number of ranks. Pure functions.
// Legend: B sequences, T positions, E experts.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace trireme {
inline namespace v0 {
namespace models {

struct Routing {
  /// int64 [B T, top_k]: the chosen experts, most probable first; of equal ones the lower number.
  at::Tensor chosen;
  /// int64: the choices that have a place, each as token * top_k + place in `chosen`, where token =
  /// b T + t. By expert, then sequence; there all first choices before the second ones, in order of
  /// position: those that come last are dropped.
  at::Tensor places;
  std::vector<std::int64_t> counts;  // [E]: of `places`
  at::Tensor load;                   // int64 [B, E]: choices, with and without a place
  std::int64_t dropped = 0;          // choices without a place
};

/// `probabilities` [B, T, E], without autograd. 1 <= top_k <= E, capacity >= 0.
Routing route(const at::Tensor& probabilities, int top_k, std::int64_t capacity);

/// Choices of a sequence that an expert takes: factor top_k T / E, rounded up; at most T.
std::int64_t capacity_of(std::int64_t length, int experts, int top_k, double factor);

/// Rows that an expert with `count` tokens computes, zeros behind them: a multiple of 16, and never
/// none. Products are code generated for their shape (oneDNN), some 0.3 MB for each that ever
/// occurred; routing would bring a new one nearly every time.
std::int64_t computed_rows(std::int64_t count);

}  // namespace models
}  // namespace v0
}  // namespace trireme
