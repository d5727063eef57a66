// How the GPU's kernels read and write stored numbers. Plain C++, so that the host's compiler gives the
// same bits.
#pragma once

#include <cstdint>
#include <cstring>

#include "trireme/base/buffer.h"
#include "trireme/kernel/cuda/gpu_call.h"

namespace trireme::inline v0::kernel {
namespace cuda {

template <class To, class From>
TRIREME_GPU_CALL To cast_bits(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  memcpy(&to, &from, sizeof to);
  return to;
}

/// The type that a stored type is computed in (`Math`), and the one that Min and Max compare.
template <class T>
struct Codec {
  using Math = T;
  using Compared = T;
  static TRIREME_GPU_CALL Math decode(T value) { return value; }
  static TRIREME_GPU_CALL T encode(Math value) { return value; }
};

template <>
struct Codec<BFloat16> {
  using Math = float;
  using Compared = float;
  static TRIREME_GPU_CALL float decode(BFloat16 value) {
    return cast_bits<float>(std::uint32_t(value.bits) << 16);
  }
  static TRIREME_GPU_CALL BFloat16 encode(float value) {
    const auto bits = cast_bits<std::uint32_t>(value);
    const std::uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;  // nearest even
    const std::uint32_t quiet = (bits >> 16) | 0x40u;                            // NaN stays NaN
    return {static_cast<std::uint16_t>(value == value ? rounded : quiet)};
  }
};

// Conversions after Giesen ("half_to_float_fast5", "float_to_half_fast3_rtne").
template <>
struct Codec<Float16> {
  using Math = float;
  using Compared = float;
  static TRIREME_GPU_CALL float decode(Float16 value) {
    const std::uint32_t magnitude = (value.bits & 0x7fffu) << 13;
    const float scaled = cast_bits<float>(magnitude) * cast_bits<float>(0x77800000u);  // 2^112
    const auto plain = cast_bits<std::uint32_t>(scaled);
    const std::uint32_t result = magnitude >= (0x7c00u << 13) ? plain | 0x7f800000u : plain;
    return cast_bits<float>(result | (value.bits & 0x8000u) << 16);
  }
  static TRIREME_GPU_CALL Float16 encode(float value) {
    const auto bits = cast_bits<std::uint32_t>(value);
    const std::uint32_t sign = bits & 0x80000000u, magnitude = bits ^ sign;
    std::uint32_t result;
    if (magnitude >= (127u + 16) << 23) {  // too large, infinite or NaN
      result = magnitude > 0x7f800000u ? 0x7e00u | ((magnitude >> 13) & 0x3ffu) : 0x7c00u;
    } else if (magnitude < 113u << 23) {  // denormal: the addition rounds
      const std::uint32_t magic = (127u - 15 + 23 - 10 + 1) << 23;
      const float sum = cast_bits<float>(magnitude) + cast_bits<float>(magic);
      result = cast_bits<std::uint32_t>(sum) - magic;
    } else {
      result = (magnitude + 0xc8000fffu + ((magnitude >> 13) & 1u)) >> 13;
    }
    return {static_cast<std::uint16_t>(result | sign >> 16)};
  }
};

// Integers: sums and products wrap (unsigned); Min and Max compare as signed.
template <>
struct Codec<std::uint64_t> {
  using Math = std::uint64_t;
  using Compared = std::int64_t;
  static TRIREME_GPU_CALL Math decode(std::uint64_t value) { return value; }
  static TRIREME_GPU_CALL std::uint64_t encode(Math value) { return value; }
};
template <>
struct Codec<std::uint32_t> {
  using Math = std::uint32_t;
  using Compared = std::int32_t;
  static TRIREME_GPU_CALL Math decode(std::uint32_t value) { return value; }
  static TRIREME_GPU_CALL std::uint32_t encode(Math value) { return value; }
};

}  // namespace cuda
}  // namespace trireme::inline v0::kernel
