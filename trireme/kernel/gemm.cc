#include "trireme/kernel/gemm.h"

#include <vector>

#include "trireme/base/check.h"
#include "trireme/kernel/simd.h"

namespace trireme::inline v0::kernel {
namespace {

constexpr std::size_t kWidest = 16;  // lanes of the widest level

std::size_t whole(std::size_t count) { return (count + kWidest - 1) / kWidest * kWidest; }

// Thread-local, kept between calls.
float* scratch(std::size_t floats) {
  thread_local std::vector<float> kept;
  if (kept.size() < floats) kept.resize(floats);
  return kept.data();
}

}  // namespace

void gemm(const Product<float>& product) {
  simd().gemm(product, scratch(whole(product.n) * product.k));
}

void gemm(const Product<BFloat16>& product) {
  TRIREME_CHECK(has_bf16_products());
#if defined(__x86_64__)
  const std::size_t steps = (product.k + 1) / 2;
  // Room for the units of b and a, and for a copy of b with even rows.
  avx512::gemm_bf16(product, scratch(steps * (2 * whole(product.n) + whole(product.m))));
#endif
}

void transpose(const float* from, std::size_t rows, std::size_t columns, float* to) {
  simd().transpose(from, rows, columns, to);
}

}  // namespace trireme::inline v0::kernel
