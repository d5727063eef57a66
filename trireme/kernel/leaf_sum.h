// Adds one micro-batch's gradient to the open nodes of the tree sum (docs/numerics.md).
//
// Pure functions on raw pointers, thread safe. Every element is computed by the same IEEE
// operations at every position, so the result does not depend on the vector width or the slice.
#pragma once

#include <cstddef>
#include <span>

#include "trireme/base/buffer.h"

namespace trireme::inline v0::kernel {

/// leaf[i] = gradient[i] x weight, with -0 stored as +0; a null `gradient` is all zeros. Then the
/// completed left siblings are added, the youngest (last of `open`) first:
///
///     out[i] = open[0][i] + (open[1][i] + ( ... + leaf[i]))
///
/// `out` may be open[0]; the others may not overlap it. `gradient_type` is F32, BF16 or F16 (summed
/// in fp32) or F64 (summed in fp64); `open` and `out` have the type of the sum. Returns false if
/// any result is not finite.
bool add_leaf(const void* gradient, DType gradient_type, double weight,
              std::span<const void* const> open, void* out, std::size_t count);

/// into[i] = into[i] + from[i]; F32 or F64.
void add_into(void* into, const void* from, DType type, std::size_t count);

/// True if no value is an infinity or a NaN; F32 or F64.
bool all_finite(const void* values, DType type, std::size_t count);

}  // namespace trireme::inline v0::kernel
