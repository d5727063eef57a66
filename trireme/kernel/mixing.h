// Weighted sums of the ranks' copies of a model.
//
// Element-wise on raw memory, computed in its type: F32 or F64 (CheckFailure otherwise). An
// element's result depends on its own operands only. Stateless, thread safe. Ranges may not overlap
// unless they are equal.
#pragma once

#include <cstddef>
#include <span>

#include "trireme/base/buffer.h"

namespace trireme::inline v0::kernel {

/// out[i] = weights[0] in[0][i] + weights[1] in[1][i] + ..., added from the left. Needs at least
/// one input; `out` may be one of `in`.
void weighted_sum(std::span<const double> weights, std::span<const void* const> in, void* out,
                  DType type, std::size_t count);

}  // namespace trireme::inline v0::kernel
