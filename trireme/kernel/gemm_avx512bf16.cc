// bf16 products with AVX512-BF16's dot product of pairs (CMakeLists.txt compiles this file for it).
#include <cstring>

#include "trireme/kernel/simd.h"

#if defined(__x86_64__)
#include <immintrin.h>

namespace trireme::inline v0::kernel {
namespace avx512 {
namespace {

#include "trireme/kernel/simd_vector.inc"

#include "trireme/kernel/simd_gemm.inc"

// One unit is two steps over k; its low half is the even step.
struct PairUnit {
  static VF step(VF a, VF b, VF sum) {
    return _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(a), reinterpret_cast<__m512bh>(b));
  }
};

__m512i halves(const BFloat16* p, std::size_t n) {
  const auto mask = static_cast<__mmask16>(n >= W ? 0xffff : (1u << n) - 1u);
  return _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, p));
}

/// Interleaves rows 2s and 2s + 1 of `from` [rows, columns] as pairs at to[s * to_stride + j];
/// zeros past the last row and column.
void interleave(const BFloat16* from, std::size_t from_stride, std::size_t rows,
                std::size_t columns, float* to, std::size_t to_stride) {
  for (std::size_t row = 0; row < rows; row += 2) {
    const BFloat16* even = from + row * from_stride;
    float* out = to + row / 2 * to_stride;
    for (std::size_t j = 0; j < columns; j += W) {
      const std::size_t n = columns - j;
      __m512i pairs = halves(even + j, n);
      if (row + 1 < rows) {
        pairs = _mm512_or_si512(pairs, _mm512_slli_epi32(halves(even + from_stride + j, n), 16));
      }
      _mm512_storeu_si512(out + j, pairs);
    }
  }
}

/// The stored matrix with an even number of elements per row, padded with 0. Copies only if needed.
const float* evened(const Matrix<BFloat16>& x, std::size_t rows, std::size_t columns,
                    std::size_t& stride, BFloat16* scratch) {
  const std::size_t even = columns + columns % 2;
  stride = x.stride / 2;
  if (x.stride % 2 == 0 && columns % 2 == 0 && reinterpret_cast<std::uintptr_t>(x.data) % 4 == 0)
    return reinterpret_cast<const float*>(x.data);
  stride = even / 2;
  for (std::size_t row = 0; row < rows; ++row) {
    std::memcpy(scratch + row * even, x.data + row * x.stride, columns * sizeof(BFloat16));
    std::memset(scratch + row * even + columns, 0, (even - columns) * sizeof(BFloat16));
  }
  return reinterpret_cast<const float*>(scratch);
}

}  // namespace

void gemm_bf16(const Product<BFloat16>& p, float* scratch) {
  const std::size_t steps = (p.k + 1) / 2, columns = whole_columns(p.n), rows = whole_columns(p.m);
  float* own_b = scratch;
  float* own_a = own_b + steps * columns;
  float* copy = own_a + steps * rows;
  UnitsA a{};
  if (p.a.transposed) {
    interleave(p.a.data, p.a.stride, p.k, p.m, own_a, rows);
    a = {own_a, 1, rows};
  } else {
    a.data = evened(p.a, p.m, p.k, a.row_stride, reinterpret_cast<BFloat16*>(own_a));
    a.step_stride = 1;
  }
  if (p.b.transposed) {
    std::size_t stride = 0;
    const float* from = evened(p.b, p.n, p.k, stride, reinterpret_cast<BFloat16*>(copy));
    transpose_of<true>(from, stride, p.n, steps, own_b, columns);
  } else {
    interleave(p.b.data, p.b.stride, p.k, p.n, own_b, columns);
  }
  multiply_of<PairUnit>(p.m, p.n, steps, a, {own_b, columns}, p.c, p.c_stride, p.accumulate);
}

}  // namespace avx512
}  // namespace trireme::inline v0::kernel
#endif
