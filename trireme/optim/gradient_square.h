// The sum of squares of one gradient, in one order whatever the number of threads: clip_grad_norm,
// gradient noise.
#pragma once

#include <ATen/core/Tensor.h>

namespace trireme {
inline namespace v0 {
namespace optim {

/// In fp64, over 4,096-element chunks (chunk_squares) one after the other. Any type, layout and
/// device; rows of a sparse gradient are coalesced first.
double gradient_square(const at::Tensor& gradient);

}  // namespace optim
}  // namespace v0
}  // namespace trireme
