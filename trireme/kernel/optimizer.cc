#include "trireme/kernel/optimizer.h"

#include <algorithm>
#include <cmath>

#include "trireme/kernel/simd.h"

namespace trireme::inline v0::kernel {

void adamw(const AdamWNumbers& numbers, const float* gradient, float* weight, float* exp_avg,
           float* exp_avg_sq, BFloat16* compute, std::size_t count) {
  simd().optimizer.adamw(numbers, gradient, weight, exp_avg, exp_avg_sq, compute, count);
}
void adamw(const AdamWNumbers& numbers, const double* gradient, double* weight, double* exp_avg,
           double* exp_avg_sq, BFloat16*, std::size_t count) {
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
  simd().optimizer.sgd(numbers, gradient, weight, momentum, compute, count);
}
void sgd(const SgdNumbers& numbers, const double* gradient, double* weight, double* momentum,
         BFloat16*, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    double g = gradient[i] * numbers.scale + numbers.weight_decay * weight[i];
    if (momentum != nullptr) {
      const double kept = momentum[i] * numbers.momentum;
      const double b = momentum[i] = numbers.first ? g : kept + g * numbers.one_minus_dampening;
      g = numbers.nesterov ? g + b * numbers.momentum : b;
    }
    weight[i] -= numbers.rate * g;
  }
}

void lion(const LionNumbers& numbers, const float* gradient, float* weight, float* exp_avg,
          BFloat16* compute, std::size_t count) {
  simd().optimizer.lion(numbers, gradient, weight, exp_avg, compute, count);
}
void lion(const LionNumbers& numbers, const double* gradient, double* weight, double* exp_avg,
          BFloat16*, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    const double g = gradient[i] * numbers.scale, m = exp_avg[i];
    const double mixed = m * numbers.beta1 + g * numbers.one_minus_beta1;
    const double sign = static_cast<double>(mixed > 0) - static_cast<double>(mixed < 0);
    weight[i] = weight[i] * numbers.decay - numbers.rate * sign;
    exp_avg[i] = m * numbers.beta2 + g * numbers.one_minus_beta2;
  }
}

void moments(const MomentNumbers& numbers, const float* gradient, float* exp_avg, float* exp_avg_sq,
             std::size_t count) {
  simd().optimizer.moments(numbers, gradient, exp_avg, exp_avg_sq, count);
}
void moments(const MomentNumbers& numbers, const double* gradient, double* exp_avg,
             double* exp_avg_sq, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    const double g = gradient[i] * numbers.scale;
    exp_avg[i] += (g - exp_avg[i]) * numbers.one_minus_beta1;
    exp_avg_sq[i] = exp_avg_sq[i] * numbers.beta2 + g * g * numbers.one_minus_beta2;
  }
}

void lamb_direction(const LambNumbers& numbers, const float* weight, const float* exp_avg,
                    const float* exp_avg_sq, float* direction, std::size_t count) {
  simd().optimizer.lamb_direction(numbers, weight, exp_avg, exp_avg_sq, direction, count);
}
void lamb_direction(const LambNumbers& numbers, const double* weight, const double* exp_avg,
                    const double* exp_avg_sq, double* direction, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    const double divisor = std::sqrt(exp_avg_sq[i]) / numbers.sqrt_bias2 + numbers.epsilon;
    direction[i] = exp_avg[i] / numbers.bias1 / divisor + numbers.weight_decay * weight[i];
  }
}

void factored_direction(const FactoredNumbers& numbers, const float* gradient, const float* columns,
                        float* direction, std::size_t count) {
  simd().optimizer.factored_direction(numbers, gradient, columns, direction, count);
}
void factored_direction(const FactoredNumbers& numbers, const double* gradient,
                        const double* columns, double* direction, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    const double square = std::max(numbers.row * columns[i], numbers.floor);
    direction[i] = gradient[i] * numbers.scale / std::sqrt(square);
  }
}

void average_squares(double scale, double blend, const float* gradient, float* average,
                     std::size_t count) {
  simd().optimizer.average_squares(scale, blend, gradient, average, count);
}
void average_squares(double scale, double blend, const double* gradient, double* average,
                     std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    const double g = gradient[i] * scale;
    average[i] += (g * g - average[i]) * blend;
  }
}

void descend(double decay, double rate, const float* direction, float* weight, BFloat16* compute,
             std::size_t count) {
  simd().optimizer.descend(decay, rate, direction, weight, compute, count);
}
void descend(double decay, double rate, const double* direction, double* weight, BFloat16*,
             std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) weight[i] = weight[i] * decay - rate * direction[i];
}

void add_squares(const float* values, double* sums, std::size_t count) {
  simd().optimizer.add_squares(values, sums, count);
}
void add_squares(const double* values, double* sums, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) sums[i] += values[i] * values[i];
}

}  // namespace trireme::inline v0::kernel
