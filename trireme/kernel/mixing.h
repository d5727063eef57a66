// Arithmetic on the ranks' copies of a model: weighted means, EASGD's elastic update, and the
// difference that an outer optimizer takes as its gradient.
//
// Element-wise on raw memory, computed in its type: F32 or F64 (CheckFailure otherwise). An
// element's result depends on its own operands only. Stateless, thread safe. Ranges may not overlap
// unless they are equal.
#pragma once

#include <cstddef>
#include <span>

#include "trireme/base/dtype.h"

namespace trireme::inline v0::kernel {

/// out[i] = weights[0] in[0][i] + weights[1] in[1][i] + ..., added from the left. Needs at least
/// one input; `out` may be one of `in`.
void weighted_sum(std::span<const double> weights, std::span<const void* const> in, void* out,
                  DType type, std::size_t count);

/// out[i] = left[i] - right[i]; `out` may be either.
void subtract(const void* left, const void* right, void* out, DType type, std::size_t count);

/// Zhang, Choromanska, LeCun 2015 (arXiv:1412.6651), equations 5 and 6, both from the old values:
/// own -= alpha (own - centre) and centre += beta (mean - centre), where `mean` is the ranks' mean
/// of `own`.
void elastic(double alpha, double beta, const void* mean, void* own, void* centre, DType type,
             std::size_t count);

}  // namespace trireme::inline v0::kernel
