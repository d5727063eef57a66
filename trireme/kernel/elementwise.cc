#include "trireme/kernel/elementwise.h"

#include "trireme/kernel/simd.h"

namespace trireme::inline v0::kernel {

const SimdTable& simd(Isa isa) noexcept {
#if defined(__x86_64__)
  if (isa == Isa::Avx512) return avx512::kTable;
  if (isa == Isa::Avx2) return avx2::kTable;
#endif
  static_cast<void>(isa);
  return generic::kTable;
}
const SimdTable& simd() noexcept {
  static const SimdTable& table = simd(isa());
  return table;
}

void convert(const BFloat16* from, float* to, std::size_t count) {
  simd().bf16_to_f32(from, to, count);
}
void convert(const float* from, BFloat16* to, std::size_t count) {
  simd().to_bf16(from, to, count);
}
void convert(const Float16* from, float* to, std::size_t count) {
  simd().f16_to_f32(from, to, count);
}
void convert(const float* from, Float16* to, std::size_t count) { simd().to_f16(from, to, count); }

double chunk_square_sum(const float* values, std::size_t count) {
  return simd().square_sum(values, count);
}

double chunk_square_sum(const double* values, std::size_t count) {
  double sums[16] = {};
  for (std::size_t i = 0; i < count; ++i) sums[i % 16] += values[i] * values[i];
  for (int half = 8; half > 0; half /= 2) {
    for (int lane = 0; lane < half; ++lane) sums[lane] += sums[lane + half];
  }
  return sums[0];
}

void add_squares(const float* values, double* sums, std::size_t count) {
  simd().add_squares(values, sums, count);
}
void add_squares(const double* values, double* sums, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) sums[i] += values[i] * values[i];
}

}  // namespace trireme::inline v0::kernel
