// Sums of squares by LibTorch's operations, on the tensor's device. Halves are added, so that the
// order of addition depends on nothing but the size of what is added. No function waits for the
// device. Stateless, thread safe.
#pragma once

#include <ATen/core/Tensor.h>

namespace trireme::inline v0::tensor {

/// Sums over the last dimension, whose size is a power of two.
at::Tensor sum_by_halves(at::Tensor values);

/// The fp64 sums of squares of every chunk of 4,096 elements of a flat tensor: [chunks].
at::Tensor chunk_squares(const at::Tensor& flat);

}  // namespace trireme::inline v0::tensor
