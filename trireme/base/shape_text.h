// shape_text: the shape of a tensor in messages and tables.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace trireme::inline v0 {

/// "[2, 3]"; "[]" for a scalar.
inline std::string shape_text(std::span<const std::int64_t> shape) {
  std::string text = "[";
  for (const std::int64_t dim : shape) text += (text.size() > 1 ? ", " : "") + std::to_string(dim);
  return text + "]";
}

}  // namespace trireme::inline v0
