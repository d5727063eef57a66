// shape_text, tensor_text: the shape, and the type, of a tensor in messages and tables.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "trireme/base/buffer.h"
#include "trireme/base/joined.h"

namespace trireme::inline v0 {

/// "[2, 3]"; "[]" for a scalar.
inline std::string shape_text(std::span<const std::int64_t> shape) {
  return "[" + joined(shape, [](std::int64_t dim) { return std::to_string(dim); }) + "]";
}

/// "F32 [2, 3]".
inline std::string tensor_text(DType dtype, std::span<const std::int64_t> shape) {
  return std::string(name_of(dtype)) + " " + shape_text(shape);
}

}  // namespace trireme::inline v0
