// The positions of a sequence that a context-parallel rank has. The sequence is cut into 2N equal
// chunks; rank r has chunks r and 2N - 1 - r ("zigzag"), so that ranks have equal work under a
// causal mask.
//
//     N = 2, T = 8     rank 0: 0 1 . . . . 6 7     rank 1: . . 2 3 4 5 . .
//
// Pure functions; functions of tensors work under autograd.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "trireme/tensor/batch.h"

namespace trireme::inline v0::parallel {

/// Ascending, int64 [length / ranks]. ConfigError with the arithmetic if 2 x ranks does not divide
/// length; with one rank every length is allowed.
at::Tensor positions_of(std::int64_t length, int rank, int ranks);

/// Those positions of `whole` along `dim`; contiguous.
at::Tensor cut_positions(const at::Tensor& whole, std::int64_t dim, int rank, int ranks);
/// The whole tensor, from all ranks' parts in rank order.
at::Tensor join_positions(const std::vector<at::Tensor>& parts, std::int64_t dim);

/// Cuts every field that has as many positions (dim 1) as "tokens"; `count` does not change.
MicroBatch cut_positions(const MicroBatch& whole, int rank, int ranks);

}  // namespace trireme::inline v0::parallel
