// The vector code of kernel/reduce.h. Each reduce_<set>.cc names its table (TRIREME_REDUCE_TABLE),
// includes this once and is compiled for that instruction set. So everything else here has internal
// linkage, and no inline function of a standard header is used: the linker might pick this file's
// copy for a machine that cannot run it.
//
// A vector is 64 bytes of GCC's vector extension; for narrower machines the compiler splits it.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "trireme/kernel/reduce_table.h"

namespace trireme::inline v0::kernel {
namespace {

template <class T>
struct Lanes {
  typedef T Vector __attribute__((vector_size(64)));
};
template <class T>
using Vector = typename Lanes<T>::Vector;
typedef std::uint32_t Wide __attribute__((vector_size(128)));  // 32 halves as words
typedef float WideFloat __attribute__((vector_size(128)));
typedef std::uint16_t Halves __attribute__((vector_size(64)));

struct BF16 {
  std::uint16_t bits;
};
struct F16 {
  std::uint16_t bits;
};

// The type that a stored type is computed in (by default the same), and the conversions.
template <class T>
struct Codec {
  using Stored = Vector<T>;
  using Math = Vector<T>;
  static inline Math decode(Stored v) { return v; }
  static inline Stored encode(Math v) { return v; }
};

template <>
struct Codec<BF16> {
  using Stored = Halves;
  using Math = WideFloat;
  static inline Math decode(Stored v) { return (Math)(__builtin_convertvector(v, Wide) << 16); }
  static inline Stored encode(Math v) {
    const Wide bits = (Wide)v;
    const Wide rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;  // nearest even
    const Wide quiet = (bits >> 16) | 0x40u;                            // NaN stays NaN
    return __builtin_convertvector(v == v ? rounded : quiet, Halves);
  }
};

template <>
struct Codec<F16> {
  using Stored = Halves;
  using Math = WideFloat;
#if defined(__F16C__)
  static inline Math decode(Stored v) {
    Math out;
    for (int i = 0; i < 4; ++i) {
      __m128i part;
      __builtin_memcpy(&part, reinterpret_cast<const char*>(&v) + 16 * i, 16);
      const __m256 wide = _mm256_cvtph_ps(part);
      __builtin_memcpy(reinterpret_cast<char*>(&out) + 32 * i, &wide, 32);
    }
    return out;
  }
  static inline Stored encode(Math v) {
    Stored out;
    for (int i = 0; i < 4; ++i) {
      __m256 wide;
      __builtin_memcpy(&wide, reinterpret_cast<const char*>(&v) + 32 * i, 32);
      const __m128i part = _mm256_cvtps_ph(wide, _MM_FROUND_TO_NEAREST_INT);
      __builtin_memcpy(reinterpret_cast<char*>(&out) + 16 * i, &part, 16);
    }
    return out;
  }
#else
  // Branch-free conversions after Giesen ("half_to_float_fast5", "float_to_half_fast3_rtne").
  static inline Math decode(Stored v) {
    const Wide bits = __builtin_convertvector(v, Wide);
    const Wide magnitude = (bits & 0x7fffu) << 13;
    const Wide scale_bits = Wide{} + 0x77800000u;  // 2^112
    const Math scaled = (Math)magnitude * (Math)scale_bits;
    const Wide special = (Wide)scaled | 0x7f800000u;
    const Wide value = magnitude >= (0x7c00u << 13) ? special : (Wide)scaled;
    return (Math)(value | ((bits & 0x8000u) << 16));
  }
  static inline Stored encode(Math v) {
    const Wide bits = (Wide)v;
    const Wide sign = bits & 0x80000000u, magnitude = bits ^ sign;
    const Wide infinite = Wide{} + 0x7c00u;
    const Wide nan = 0x7e00u | ((magnitude >> 13) & 0x3ffu);
    const Wide denormal_magic = Wide{} + ((127u - 15 + 23 - 10 + 1) << 23);
    const Wide denormal = (Wide)((Math)magnitude + (Math)denormal_magic) - denormal_magic;
    const Wide odd = (magnitude >> 13) & 1u;
    const Wide normal = (magnitude + 0xc8000fffu + odd) >> 13;
    const Wide finite = magnitude < (113u << 23) ? denormal : normal;
    const Wide large = magnitude > 0x7f800000u ? nan : infinite;
    const Wide value = magnitude >= ((127u + 16) << 23) ? large : finite;
    return __builtin_convertvector(value | (sign >> 16), Halves);
  }
#endif
};

struct SumOp {
  template <class V>
  static inline V apply(V a, V b) {
    return a + b;
  }
};
struct ProductOp {
  template <class V>
  static inline V apply(V a, V b) {
    return a * b;
  }
};
struct MinOp {  // returns a NaN if either is one; for integers a != a is never true
  template <class V>
  static inline V apply(V a, V b) {
    return (a < b) | (a != a) ? a : b;
  }
};
struct MaxOp {
  template <class V>
  static inline V apply(V a, V b) {
    return (a > b) | (a != a) ? a : b;
  }
};

template <class T>
inline typename Codec<T>::Stored load(const T* from) {
  typename Codec<T>::Stored value;
  __builtin_memcpy(&value, from, 64);
  return value;
}

template <class V>
inline void store(void* to, V value) {
  __builtin_memcpy(to, &value, 64);
}

template <class Op, class T>
inline typename Codec<T>::Stored apply(typename Codec<T>::Stored a, typename Codec<T>::Stored b) {
  return Codec<T>::encode(Op::apply(Codec<T>::decode(a), Codec<T>::decode(b)));
}

template <class Op, class T, int kOuts>  // 0: any number
void combine_loop(const T* left, const T* right, T* const* outs, std::size_t num_outs,
                  std::size_t count) {
  constexpr std::size_t lanes = 64 / sizeof(T);
  T* const first = outs[0];
  T* const second = kOuts == 2 ? outs[1] : nullptr;
  std::size_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const auto value = apply<Op, T>(load(left + i), load(right + i));
    if constexpr (kOuts == 0) {
      for (std::size_t k = 0; k < num_outs; ++k) store(outs[k] + i, value);
    } else {
      store(first + i, value);
      if constexpr (kOuts == 2) store(second + i, value);
    }
  }
  if (i == count) return;
  const std::size_t rest = (count - i) * sizeof(T);
  typename Codec<T>::Stored a{}, b{};
  __builtin_memcpy(&a, left + i, rest);
  __builtin_memcpy(&b, right + i, rest);
  const auto value = apply<Op, T>(a, b);
  for (std::size_t k = 0; k < num_outs; ++k) __builtin_memcpy(outs[k] + i, &value, rest);
}

template <class Op, class T>
void combine_any(const void* left, const void* right, void* const* outs, std::size_t num_outs,
                 std::size_t count) {
  const T* a = static_cast<const T*>(left);
  const T* b = static_cast<const T*>(right);
  T* const* to = reinterpret_cast<T* const*>(outs);
  if (num_outs == 1) {
    combine_loop<Op, T, 1>(a, b, to, num_outs, count);
  } else if (num_outs == 2) {
    combine_loop<Op, T, 2>(a, b, to, num_outs, count);
  } else {
    combine_loop<Op, T, 0>(a, b, to, num_outs, count);
  }
}

// Up to 32 elements as fp32; stored as fp32 (kWide) or as T.
template <class T, bool kWide>
inline WideFloat load_wide(const void* from, std::size_t at, std::size_t count) {
  if constexpr (kWide) {
    WideFloat value{};
    __builtin_memcpy(&value, static_cast<const float*>(from) + at, count * sizeof(float));
    return value;
  } else {
    Halves value{};
    __builtin_memcpy(&value, static_cast<const T*>(from) + at, count * sizeof(T));
    return Codec<T>::decode(value);
  }
}

template <class T, bool kWide>
inline void store_wide(void* to, std::size_t at, std::size_t count, WideFloat value) {
  if constexpr (kWide) {
    __builtin_memcpy(static_cast<float*>(to) + at, &value, count * sizeof(float));
  } else {
    const Halves narrow = Codec<T>::encode(value);
    __builtin_memcpy(static_cast<T*>(to) + at, &narrow, count * sizeof(T));
  }
}

template <class Op, class T, bool kLeft, bool kRight, bool kOut>
void combine_mixed(const void* left, const void* right, void* const* outs, std::size_t num_outs,
                   std::size_t count) {
  constexpr std::size_t lanes = 32;
  for (std::size_t i = 0; i + lanes <= count; i += lanes) {
    const WideFloat value =
        Op::apply(load_wide<T, kLeft>(left, i, lanes), load_wide<T, kRight>(right, i, lanes));
    for (std::size_t k = 0; k < num_outs; ++k) store_wide<T, kOut>(outs[k], i, lanes, value);
  }
  const std::size_t rest = count % lanes, at = count - rest;
  if (rest == 0) return;
  const WideFloat value =
      Op::apply(load_wide<T, kLeft>(left, at, rest), load_wide<T, kRight>(right, at, rest));
  for (std::size_t k = 0; k < num_outs; ++k) store_wide<T, kOut>(outs[k], at, rest, value);
}

template <class T, class Scalar>
void divide_any(void* values, std::size_t count, double by) {
  constexpr std::size_t lanes = 64 / sizeof(T);
  T* const at = static_cast<T*>(values);
  const Scalar divisor = static_cast<Scalar>(by);
  for (std::size_t i = 0; i < count; i += lanes) {
    const std::size_t bytes = (count - i < lanes ? count - i : lanes) * sizeof(T);
    typename Codec<T>::Stored value{};
    __builtin_memcpy(&value, at + i, bytes);
    value = Codec<T>::encode(Codec<T>::decode(value) / divisor);
    __builtin_memcpy(at + i, &value, bytes);
  }
}

// Integers: sums and products wrap (unsigned); min and max compare as signed.
#define TRIREME_ROW(Op, Long, Int)                                                                \
  {                                                                                               \
    combine_any<Op, double>, combine_any<Op, float>, combine_any<Op, BF16>, combine_any<Op, F16>, \
        combine_any<Op, Long>, combine_any<Op, Int>, combine_any<Op, std::uint8_t>                \
  }
#define TRIREME_MIXED(Op, T)                                                               \
  {                                                                                        \
    combine_any<Op, T>, combine_mixed<Op, T, false, false, true>,                          \
        combine_mixed<Op, T, false, true, false>, combine_mixed<Op, T, false, true, true>, \
        combine_mixed<Op, T, true, false, false>, combine_mixed<Op, T, true, false, true>, \
        combine_mixed<Op, T, true, true, false>, combine_mixed<Op, T, true, true, true>    \
  }

}  // namespace

const ReduceTable TRIREME_REDUCE_TABLE = {
    {TRIREME_ROW(SumOp, std::uint64_t, std::uint32_t),
     TRIREME_ROW(MinOp, std::int64_t, std::int32_t), TRIREME_ROW(MaxOp, std::int64_t, std::int32_t),
     TRIREME_ROW(ProductOp, std::uint64_t, std::uint32_t)},
    {divide_any<double, double>, divide_any<float, float>, divide_any<BF16, float>,
     divide_any<F16, float>},
    {{TRIREME_MIXED(SumOp, BF16), TRIREME_MIXED(SumOp, F16)},
     {TRIREME_MIXED(ProductOp, BF16), TRIREME_MIXED(ProductOp, F16)}}};

}  // namespace trireme::inline v0::kernel
