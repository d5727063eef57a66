// Element-wise kernels: conversions, optimizer updates, norm chunks.
//
// An element's result depends on its own inputs only, never on its position, the length or the cut:
// tails run the masked form of the same vector code. One body (simd_body.inc) is compiled for each
// instruction set; the calls here go to the level of isa(). fp64 forms are plain loops. Pointers
// need no alignment. Stateless, thread safe; ranges may not overlap unless they are equal.
#pragma once

#include <cstddef>
#include <cstdint>

#include "trireme/base/dtype.h"

namespace trireme {
inline namespace v0 {
namespace kernel {

void convert(const BFloat16* from, float* to, std::size_t count);
/// Round to nearest, ties to even; NaN stays NaN (quiet).
void convert(const float* from, BFloat16* to, std::size_t count);

/// One AdamW step's numbers, already combined (torch.optim.AdamW's formula and order):
/// w *= decay; m += (g - m)(1 - beta1); v = v beta2 + g g (1 - beta2);
/// w -= step_size * m / (sqrt(v) * inverse_sqrt_bias2 + epsilon), where g = gradient * scale.
struct AdamWNumbers {
  double scale = 1, decay = 1, one_minus_beta1 = 0.1, beta2 = 0.999, one_minus_beta2 = 0.001;
  double step_size = 0, sqrt_bias2 = 1, epsilon = 1e-8;
};
/// `compute` (may be null) receives the new weight rounded to bf16.
void adamw(const AdamWNumbers& numbers, const float* gradient, float* weight, float* exp_avg,
           float* exp_avg_sq, BFloat16* compute, std::size_t count);
void adamw(const AdamWNumbers& numbers, const double* gradient, double* weight, double* exp_avg,
           double* exp_avg_sq, std::size_t count);

/// g = gradient * scale + weight_decay * w; with momentum: b = momentum b + g (b = g on the first
/// step), g = b, or g + momentum b for Nesterov; w -= rate g.
struct SgdNumbers {
  double scale = 1, weight_decay = 0, momentum = 0, rate = 0;
  bool nesterov = false, first = true;
};
/// `momentum` may be null where numbers.momentum is 0.
void sgd(const SgdNumbers& numbers, const float* gradient, float* weight, float* momentum,
         BFloat16* compute, std::size_t count);
void sgd(const SgdNumbers& numbers, const double* gradient, double* weight, double* momentum,
         std::size_t count);

inline constexpr std::size_t kNormChunk = 4096;
/// The fp64 sum of squares of up to kNormChunk elements: 16 interleaved sums folded pairwise, the
/// same order at every instruction set.
double chunk_square_sum(const float* values, std::size_t count);
double chunk_square_sum(const double* values, std::size_t count);

}  // namespace kernel
}  // namespace v0
}  // namespace trireme
