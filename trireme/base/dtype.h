// Element types that cross ranks and files. Names follow safetensors (F32, BF16, I64, ...).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace trireme::inline v0 {

enum class DType : std::uint8_t { F64, F32, BF16, F16, I64, I32, I16, I8, U8, Bool };

constexpr std::size_t size_of(DType dtype) noexcept {
  switch (dtype) {
    case DType::F64:
    case DType::I64:
      return 8;
    case DType::F32:
    case DType::I32:
      return 4;
    case DType::BF16:
    case DType::F16:
    case DType::I16:
      return 2;
    default:
      return 1;
  }
}

/// "F32", "BF16", ...: the safetensors name.
std::string_view name_of(DType dtype) noexcept;
std::optional<DType> dtype_named(std::string_view name) noexcept;

/// Storage types without arithmetic of their own; kernel/elementwise.h converts them.
struct BFloat16 {
  std::uint16_t bits;
};
struct Float16 {
  std::uint16_t bits;
};

template <class T>
struct DTypeOf;
template <>
struct DTypeOf<double> {
  static constexpr DType value = DType::F64;
};
template <>
struct DTypeOf<float> {
  static constexpr DType value = DType::F32;
};
template <>
struct DTypeOf<BFloat16> {
  static constexpr DType value = DType::BF16;
};
template <>
struct DTypeOf<Float16> {
  static constexpr DType value = DType::F16;
};
template <>
struct DTypeOf<std::int64_t> {
  static constexpr DType value = DType::I64;
};
template <>
struct DTypeOf<std::int32_t> {
  static constexpr DType value = DType::I32;
};
template <>
struct DTypeOf<std::uint8_t> {
  static constexpr DType value = DType::U8;
};

}  // namespace trireme::inline v0
