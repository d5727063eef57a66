// Conversions between at::Tensor and Buffer: two views of the same memory, never a copy.
//
// to_buffer() refuses tensors that are not contiguous (CheckFailure): the caller decides where to
// copy. The Buffer keeps the tensor's storage alive, and view_of() the Buffer's owner.
#pragma once

#include <ATen/core/Tensor.h>

#include "trireme/base/buffer.h"

namespace trireme::inline v0::tensor {

DType dtype_of(at::ScalarType type);
inline DType dtype_of(const at::Tensor& tensor) { return dtype_of(tensor.scalar_type()); }
at::ScalarType scalar_type_of(DType dtype);

/// The tensor's memory in row-major order; `owner` holds its storage.
Buffer to_buffer(const at::Tensor& tensor);
/// All bytes of a dense tensor, whatever the order of its dimensions.
Buffer bytes_of(const at::Tensor& tensor);
/// A contiguous tensor of `sizes` over the first elements of `buffer`.
at::Tensor view_of(const Buffer& buffer, at::IntArrayRef sizes);
/// One-dimensional view of the whole buffer.
at::Tensor view_of(const Buffer& buffer);

/// fp64, fp32, bf16 or fp16 by its name in configurations; ConfigError for other names.
at::ScalarType compute_type(std::string_view precision);

}  // namespace trireme::inline v0::tensor
