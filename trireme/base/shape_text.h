// shape_text: the shape of a tensor in messages and tables.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "trireme/base/joined.h"

namespace trireme::inline v0 {

/// "[2, 3]"; "[]" for a scalar.
inline std::string shape_text(std::span<const std::int64_t> shape) {
  return "[" + joined(shape, [](std::int64_t dim) { return std::to_string(dim); }) + "]";
}

}  // namespace trireme::inline v0
