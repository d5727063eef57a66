// The arithmetic of fold() in kernel/reduce.h, one element at a time. Both the GPU's compiler and
// the host's compile it: the same operations in the same order, so the same bits as fold() on the
// CPU (except for the payload of a NaN, which depends on the processor).
//
// The tests compare the host's build with fold(), bit for bit. kernels.cu compiles this file again
// with __device__, without contraction and without flushing denormals. Plain C++, no standard
// library, no state.
#pragma once

#include <cstdint>
#include <cstring>

#include "trireme/kernel/cuda/gpu_call.h"

namespace trireme::inline v0::kernel {
namespace cuda {

inline constexpr int kMostOperands = 128;
/// The most partial sums open at a time: the depth of a tree of 2^32 leaves, plus one.
inline constexpr int kMostOpen = 33;

/// The parameter of a fold kernel. Operands are ascending; after operand k has been read, the last
/// two partial sums are merged merges[k] times. The result is divided by `by` unless that is 0.
struct FoldArguments {
  const void* in[kMostOperands];
  void* out;
  std::uint64_t count;
  double by;
  std::uint32_t num_operands;
  std::uint8_t merges[kMostOperands];
};

struct BFloat16 {
  std::uint16_t bits;
};
struct Float16 {
  std::uint16_t bits;
};

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

// The values of kernel::Combine, in the same order.
enum FoldOp { FoldSum, FoldMin, FoldMax, FoldProduct };

/// Min and Max return a NaN if either operand is one.
template <FoldOp kOp, class Compared, class Math>
TRIREME_GPU_CALL Math combine_two(Math a, Math b) {
  if constexpr (kOp == FoldSum) {
    return static_cast<Math>(a + b);
  } else if constexpr (kOp == FoldProduct) {
    return static_cast<Math>(a * b);
  } else {
    const Compared left = static_cast<Compared>(a), right = static_cast<Compared>(b);
    const bool first = kOp == FoldMin ? left < right : left > right;
    return first || left != left ? a : b;
  }
}

template <class Math>
TRIREME_GPU_CALL Math divide_by(Math value, double by) {
  return static_cast<Math>(value / static_cast<Math>(by));
}

/// Computes element i of the result. 16-bit floats are accumulated in fp32 and rounded once; a
/// division rounds again, as in fold().
template <FoldOp kOp, class T>
TRIREME_GPU_CALL void fold_element(const FoldArguments& arguments, std::uint64_t i) {
  using C = Codec<T>;
  typename C::Math open[kMostOpen];
  int top = 0;
  for (std::uint32_t k = 0; k < arguments.num_operands; ++k) {
    open[top++] = C::decode(static_cast<const T*>(arguments.in[k])[i]);
    for (int merge = arguments.merges[k]; merge > 0; --merge) {
      --top;
      open[top - 1] = combine_two<kOp, typename C::Compared>(open[top - 1], open[top]);
    }
  }
  T result = C::encode(open[0]);
  if (arguments.by != 0) result = C::encode(divide_by(C::decode(result), arguments.by));
  static_cast<T*>(arguments.out)[i] = result;
}

}  // namespace cuda
}  // namespace trireme::inline v0::kernel
