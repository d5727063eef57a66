// Buffer: memory that takes part in communication: address, count, element type, device, stream. A
// plain value; it keeps the memory alive only if `owner` is set.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <type_traits>

namespace trireme::inline v0 {

/// Element types that cross ranks and files. Names follow safetensors (F32, BF16, I64, ...).
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

/// Storage types without arithmetic; kernel/elementwise.h converts them.
struct BFloat16 {
  std::uint16_t bits;
};
struct Float16 {
  std::uint16_t bits;
};

template <class T>
struct DTypeOf;
template <>
struct DTypeOf<double> : std::integral_constant<DType, DType::F64> {};
template <>
struct DTypeOf<float> : std::integral_constant<DType, DType::F32> {};
template <>
struct DTypeOf<BFloat16> : std::integral_constant<DType, DType::BF16> {};
template <>
struct DTypeOf<Float16> : std::integral_constant<DType, DType::F16> {};
template <>
struct DTypeOf<std::int64_t> : std::integral_constant<DType, DType::I64> {};
template <>
struct DTypeOf<std::int32_t> : std::integral_constant<DType, DType::I32> {};
template <>
struct DTypeOf<std::uint8_t> : std::integral_constant<DType, DType::U8> {};

/// Cuda: also ROCm's GPUs, as in LibTorch. Other: a device that LibTorch got from another library.
enum class DeviceKind : std::uint8_t { Cpu, Cuda, Xpu, Mps, Hpu, Other };
struct Device {
  DeviceKind kind = DeviceKind::Cpu;
  int index = 0;
  friend bool operator==(const Device&, const Device&) = default;
};
/// An opaque device stream (cudaStream_t); null on the CPU.
struct Stream {
  void* handle = nullptr;
};

struct Buffer {
  void* data = nullptr;
  std::size_t count = 0;
  DType dtype = DType::F32;
  Device device = {};
  Stream stream = {};
  std::shared_ptr<void> owner = {};

  std::size_t bytes() const noexcept { return count * size_of(dtype); }
  std::span<std::byte> as_bytes() const noexcept {
    return {static_cast<std::byte*>(data), bytes()};
  }
  /// Elements [begin, begin + length).
  Buffer slice(std::size_t begin, std::size_t length) const {
    Buffer part = *this;
    part.data = static_cast<std::byte*>(data) + begin * size_of(dtype);
    part.count = length;
    return part;
  }
  template <class T>
  static Buffer of(std::span<T> values) noexcept {
    return {const_cast<std::remove_const_t<T>*>(values.data()),
            values.size(),
            DTypeOf<std::remove_const_t<T>>::value,
            {},
            {},
            {}};
  }
};

}  // namespace trireme::inline v0
