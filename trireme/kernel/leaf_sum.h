// Adding one micro-batch's gradient to the open nodes of the tree sum (NUMERICS.md: "The sum").
//
// Pure functions on raw pointers; no state, thread safe. Every element is computed by the same IEEE
// operations wherever it stands, so neither the vector width nor the cut into slices shows.
#pragma once

#include <cstddef>
#include <span>

#include "trireme/base/dtype.h"

namespace trireme {
inline namespace v0 {
namespace kernel {

/// leaf[i] = gradient[i] x weight, -0 stored as +0; null `gradient` is all zeros. Then the chain of
/// its completed left siblings is added, the youngest (last of `open`) first:
///
///     out[i] = open[0][i] + (open[1][i] + ( ... + leaf[i]))
///
/// `out` may be open[0]; the others may not overlap it. `gradient_type` is F32, BF16, F16 (sums in
/// fp32) or F64 (sums in fp64), `open` and `out` have the sum's type. Returns false if any result
/// is not finite.
bool add_leaf(const void* gradient, DType gradient_type, double weight,
              std::span<const void* const> open, void* out, std::size_t count);

/// into[i] = into[i] + from[i]; F32 or F64.
void add_into(void* into, const void* from, DType type, std::size_t count);

/// No infinity and no NaN among them; F32 or F64.
bool all_finite(const void* values, DType type, std::size_t count);

}  // namespace kernel
}  // namespace v0
}  // namespace trireme
