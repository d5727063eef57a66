#include "trireme/kernel/elementwise.h"

#include <cmath>

#include "trireme/kernel/simd.h"

namespace trireme {
inline namespace v0 {
namespace kernel {

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

void convert(const BFloat16* from, float* to, std::size_t count) { simd().to_f32(from, to, count); }
void convert(const float* from, BFloat16* to, std::size_t count) {
  simd().to_bf16(from, to, count);
}

void adamw(const AdamWNumbers& numbers, const float* gradient, float* weight, float* exp_avg,
           float* exp_avg_sq, BFloat16* compute, std::size_t count) {
  simd().adamw(numbers, gradient, weight, exp_avg, exp_avg_sq, compute, count);
}

void adamw(const AdamWNumbers& numbers, const double* gradient, double* weight, double* exp_avg,
           double* exp_avg_sq, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    const double g = gradient[i] * numbers.scale;
    exp_avg[i] += (g - exp_avg[i]) * numbers.one_minus_beta1;
    exp_avg_sq[i] = exp_avg_sq[i] * numbers.beta2 + g * g * numbers.one_minus_beta2;
    const double divisor = std::sqrt(exp_avg_sq[i]) / numbers.sqrt_bias2 + numbers.epsilon;
    weight[i] = weight[i] * numbers.decay - numbers.step_size * (exp_avg[i] / divisor);
  }
}

void sgd(const SgdNumbers& numbers, const float* gradient, float* weight, float* momentum,
         BFloat16* compute, std::size_t count) {
  simd().sgd(numbers, gradient, weight, momentum, compute, count);
}

void sgd(const SgdNumbers& numbers, const double* gradient, double* weight, double* momentum,
         std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    double g = gradient[i] * numbers.scale + numbers.weight_decay * weight[i];
    if (momentum != nullptr) {
      const double b = momentum[i] = numbers.first ? g : momentum[i] * numbers.momentum + g;
      g = numbers.nesterov ? g + b * numbers.momentum : b;
    }
    weight[i] -= numbers.rate * g;
  }
}

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

}  // namespace kernel
}  // namespace v0
}  // namespace trireme
