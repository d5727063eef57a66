#include "trireme/kernel/leaf_sum.h"

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "trireme/base/check.h"
#include "trireme/kernel/float16.h"
#include "trireme/kernel/reduce.h"

// One clone per vector width, chosen when the program is loaded. Not under sanitizers, whose code
// runs before that choice is made.
#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
#define TRIREME_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define TRIREME_CLONES
#endif

namespace trireme::inline v0::kernel {
namespace {

// -O2 vectorises loops of constant length; a block of sums stays in the first-level cache.
constexpr std::size_t kBlock = 1024;

template <class Sum>
using Bits = std::conditional_t<sizeof(Sum) == 4, std::uint32_t, std::uint64_t>;
template <class Sum>
inline constexpr Bits<Sum> kExponent = sizeof(Sum) == 4
                                           ? Bits<Sum>(0x7f800000u)
                                           : static_cast<Bits<Sum>>(0x7ff0000000000000u);

template <class Gradient, class Sum>
__attribute__((always_inline)) inline void load(const Gradient* gradient, Sum weight,
                                                std::size_t count, Sum* __restrict sums) {
  if (count == kBlock) {
    for (std::size_t i = 0; i < kBlock; ++i) sums[i] = value_of(gradient[i]) * weight + Sum(0);
  } else {
    for (std::size_t i = 0; i < count; ++i) sums[i] = value_of(gradient[i]) * weight + Sum(0);
    for (std::size_t i = count; i < kBlock; ++i) sums[i] = 0;
  }
}

template <class Sum>
__attribute__((always_inline)) inline void add(const Sum* open, std::size_t count,
                                               Sum* __restrict sums) {
  if (count == kBlock) {
    for (std::size_t i = 0; i < kBlock; ++i) sums[i] = open[i] + sums[i];
  } else {
    for (std::size_t i = 0; i < count; ++i) sums[i] = open[i] + sums[i];
  }
}

template <class Sum>
__attribute__((always_inline)) inline bool finite(const Sum* sums) {
  Bits<Sum> bad = 0;
  for (std::size_t i = 0; i < kBlock; ++i) {
    Bits<Sum> bits;
    std::memcpy(&bits, sums + i, sizeof bits);
    bad |= static_cast<Bits<Sum>>((bits & kExponent<Sum>) == kExponent<Sum>);
  }
  return bad == 0;
}

template <class Gradient, class Sum>
__attribute__((always_inline)) inline bool add_leaf_of(const Gradient* gradient, Sum weight,
                                                       std::span<const void* const> open, Sum* out,
                                                       std::size_t count) {
  alignas(64) Sum sums[kBlock];
  bool good = true;
  for (std::size_t begin = 0; begin < count; begin += kBlock) {
    const std::size_t length = count - begin < kBlock ? count - begin : kBlock;
    if (gradient) {
      load(gradient + begin, weight, length, sums);
    } else {
      std::memset(sums, 0, sizeof sums);
    }
    for (std::size_t k = open.size(); k-- > 0;)
      add(static_cast<const Sum*>(open[k]) + begin, length, sums);
    good &= finite(sums);
    std::memcpy(out + begin, sums, length * sizeof(Sum));
  }
  return good;
}

TRIREME_CLONES bool add_f32(const float* gradient, float weight, std::span<const void* const> open,
                            float* out, std::size_t count) {
  return add_leaf_of(gradient, weight, open, out, count);
}
TRIREME_CLONES bool add_bf16(const BFloat16* gradient, float weight,
                             std::span<const void* const> open, float* out, std::size_t count) {
  return add_leaf_of(gradient, weight, open, out, count);
}
TRIREME_CLONES bool add_f16(const Float16* gradient, float weight,
                            std::span<const void* const> open, float* out, std::size_t count) {
  return add_leaf_of(gradient, weight, open, out, count);
}
TRIREME_CLONES bool add_f64(const double* gradient, double weight,
                            std::span<const void* const> open, double* out, std::size_t count) {
  return add_leaf_of(gradient, weight, open, out, count);
}

template <class Sum>
__attribute__((always_inline)) inline bool all_finite_of(const Sum* values, std::size_t count) {
  std::size_t begin = 0;
  for (; begin + kBlock <= count; begin += kBlock)
    if (!finite(values + begin)) return false;
  alignas(64) Sum rest[kBlock] = {};
  if (begin < count) std::memcpy(rest, values + begin, (count - begin) * sizeof(Sum));
  return finite(rest);
}
TRIREME_CLONES bool finite_f32(const float* values, std::size_t count) {
  return all_finite_of(values, count);
}
TRIREME_CLONES bool finite_f64(const double* values, std::size_t count) {
  return all_finite_of(values, count);
}

}  // namespace

bool add_leaf(const void* gradient, DType gradient_type, double weight,
              std::span<const void* const> open, void* out, std::size_t count) {
  switch (gradient_type) {
    case DType::F32:
      return add_f32(static_cast<const float*>(gradient), static_cast<float>(weight), open,
                     static_cast<float*>(out), count);
    case DType::BF16:
      return add_bf16(static_cast<const BFloat16*>(gradient), static_cast<float>(weight), open,
                      static_cast<float*>(out), count);
    case DType::F16:
      return add_f16(static_cast<const Float16*>(gradient), static_cast<float>(weight), open,
                     static_cast<float*>(out), count);
    case DType::F64:
      return add_f64(static_cast<const double*>(gradient), weight, open, static_cast<double*>(out),
                     count);
    default:
      TRIREME_CHECK(name_of(gradient_type) == "F32, BF16, F16 or F64");
  }
  return false;
}

bool all_finite(const void* values, DType type, std::size_t count) {
  TRIREME_CHECK((type == DType::F32 || type == DType::F64));
  return type == DType::F32 ? finite_f32(static_cast<const float*>(values), count)
                            : finite_f64(static_cast<const double*>(values), count);
}

void add_into(void* into, const void* from, DType type, std::size_t count) {
  TRIREME_CHECK((type == DType::F32 || type == DType::F64));
  combine(Combine::Sum, type, into, from, into, count);
}

}  // namespace trireme::inline v0::kernel
