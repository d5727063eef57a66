// Conversions of one 16-bit float, for the CPU and for GPUs, with the same bits. To fp32 they are
// exact; from fp32 they round to nearest, ties to even, and a NaN stays a (quiet) NaN.
//
// Float16 (IEEE 754 binary16) is converted in integer arithmetic that compilers vectorise, after
// Giesen's "half_to_float_fast5" and "float_to_half_fast3_rtne" (public domain, 2012), except that
// subnormal numbers are converted as integers: fp32 subnormals would slow the loop down.
#pragma once

#include <cstdint>

#include "trireme/base/buffer.h"
#include "trireme/kernel/cuda/gpu_call.h"

namespace trireme::inline v0::kernel {

__attribute__((always_inline)) TRIREME_GPU_CALL float value_of(BFloat16 value) noexcept {
  return __builtin_bit_cast(float, static_cast<std::uint32_t>(value.bits) << 16);
}

// For code that takes any floating type.
constexpr float value_of(float value) noexcept { return value; }
constexpr double value_of(double value) noexcept { return value; }

TRIREME_GPU_CALL BFloat16 bfloat16_of(float value) noexcept {
  const std::uint32_t bits = __builtin_bit_cast(std::uint32_t, value);
  const std::uint32_t rounded = bits + 0x7fffu + ((bits >> 16) & 1u);
  return {static_cast<std::uint16_t>((value == value ? rounded : bits | 0x400000u) >> 16)};
}

__attribute__((always_inline)) TRIREME_GPU_CALL float value_of(Float16 half) noexcept {
  const std::uint32_t magnitude = half.bits & 0x7fffu;
  // The exponent grows by 127 - 15 = 112; that of infinities and NaNs (31) by 112 again, to 255.
  const std::uint32_t special = magnitude >= 0x7c00u ? 112u << 23 : 0u;
  const std::uint32_t normal = (magnitude << 13) + (112u << 23) + special;
  const float subnormal = static_cast<float>(static_cast<std::int32_t>(magnitude)) * 0x1p-24f;
  const std::uint32_t value =
      magnitude < 0x400u ? __builtin_bit_cast(std::uint32_t, subnormal) : normal;
  return __builtin_bit_cast(float, value | static_cast<std::uint32_t>(half.bits & 0x8000u) << 16);
}

TRIREME_GPU_CALL Float16 float16_of(float value) noexcept {
  const std::uint32_t bits = __builtin_bit_cast(std::uint32_t, value);
  const std::uint32_t sign = bits & 0x80000000u, magnitude = bits ^ sign;
  std::uint32_t half;
  if (magnitude > 0x7f800000u) {
    half = 0x7e00u | ((magnitude >> 13) & 0x3ffu);  // NaN, quiet
  } else if (magnitude >= 143u << 23) {
    half = 0x7c00u;  // 65,536 and more
  } else if (magnitude < 113u << 23) {
    // Below 2^-14: adding 1/2 leaves the ten bits of the subnormal at the end, rounded to even.
    const float shifted = __builtin_bit_cast(float, magnitude) + 0.5f;
    half = __builtin_bit_cast(std::uint32_t, shifted) - (126u << 23);
  } else {
    half = (magnitude - (112u << 23) + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
  }
  return {static_cast<std::uint16_t>(half | sign >> 16)};
}

}  // namespace trireme::inline v0::kernel
