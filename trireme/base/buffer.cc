#include "trireme/base/buffer.h"

#include <array>

namespace trireme::inline v0 {

constexpr std::array<std::string_view, 10> kNames = {"F64", "F32", "BF16", "F16", "I64",
                                                     "I32", "I16", "I8",   "U8",  "BOOL"};

std::string_view name_of(DType dtype) noexcept {
  const auto index = static_cast<std::size_t>(dtype);
  return index < kNames.size() ? kNames[index] : "unknown type";
}

std::optional<DType> dtype_named(std::string_view name) noexcept {
  for (std::size_t i = 0; i < kNames.size(); ++i) {
    if (kNames[i] == name) return static_cast<DType>(i);
  }
  return std::nullopt;
}

}  // namespace trireme::inline v0
