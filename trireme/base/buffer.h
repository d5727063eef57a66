// A piece of memory that takes part in communication: address, count, element type, device and
// stream. A plain value; it keeps the memory alive only if `owner` is set.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "trireme/base/dtype.h"

namespace trireme::inline v0 {

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
