// The sum of squares of one gradient, added in the same order for any number of threads; for
// clip_grad_norm and the gradient noise scale.
#pragma once

#include <ATen/core/Tensor.h>

namespace trireme::inline v0::optim {

/// A gradient's elements as a dense tensor: itself, or the values of a sparse one, coalesced.
at::Tensor dense_values(const at::Tensor& gradient);

/// In fp64, over 4,096-element chunks, one after the other: a number on the gradient's device, for
/// which the host does not wait. Any type, dense or sparse.
at::Tensor gradient_square(const at::Tensor& gradient);

}  // namespace trireme::inline v0::optim
