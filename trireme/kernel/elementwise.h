// Element-wise kernels: conversions and norm chunks. (optimizers/ has the optimizer updates.)
//
// An element's result depends on its own inputs only, never on its position, the length or the
// slice: tails run the masked form of the same vector code. One body (simd_body.inc) is compiled
// for each instruction set; these functions dispatch on isa(). fp64 forms are plain loops. Pointers
// need no alignment. Stateless, thread safe; ranges may not overlap unless they are equal.
#pragma once

#include <cstddef>
#include <cstdint>

#include "trireme/base/buffer.h"

namespace trireme::inline v0::kernel {

void convert(const BFloat16* from, float* to, std::size_t count);
void convert(const Float16* from, float* to, std::size_t count);
/// Rounds to nearest, ties to even; a NaN stays a (quiet) NaN. In fp16, magnitudes of 65,520 and
/// more become infinities, and magnitudes below 2^-14 become subnormal: multiples of 2^-24.
void convert(const float* from, BFloat16* to, std::size_t count);
void convert(const float* from, Float16* to, std::size_t count);

inline constexpr std::size_t kNormChunk = 4096;
/// The fp64 sum of squares of up to kNormChunk elements: 16 interleaved sums folded pairwise, the
/// same order at every instruction set.
double chunk_square_sum(const float* values, std::size_t count);
double chunk_square_sum(const double* values, std::size_t count);
/// sums[i] += values[i]^2, in fp64.
void add_squares(const float* values, double* sums, std::size_t count);
void add_squares(const double* values, double* sums, std::size_t count);

}  // namespace trireme::inline v0::kernel
