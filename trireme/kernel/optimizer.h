// Optimizer updates on raw memory; optim/ runs them over owned slices.
//
// An element's result depends on its own inputs only, never on its position, the length or the
// slice: tails run the masked form of the same vector code. One body (simd_optimizer.inc) is
// compiled for each instruction set; these functions dispatch on isa(). fp64 forms are plain loops.
// `compute` receives the new weight rounded to bf16; it may be null. Pointers need no alignment.
// Stateless, thread safe; ranges may not overlap unless they are equal.
#pragma once

#include <cstddef>

#include "trireme/base/dtype.h"

namespace trireme::inline v0::kernel {

/// The combined constants of one AdamW step (formula and order of torch.optim.AdamW):
/// w *= decay; m += (g - m)(1 - beta1); v = v beta2 + g g (1 - beta2);
/// w -= step_size * m / (sqrt(v) / sqrt_bias2 + epsilon), where g = gradient * scale.
struct AdamWNumbers {
  double scale = 1, decay = 1, one_minus_beta1 = 0.1, beta2 = 0.999, one_minus_beta2 = 0.001;
  double step_size = 0, sqrt_bias2 = 1, epsilon = 1e-8;
};
void adamw(const AdamWNumbers& numbers, const float* gradient, float* weight, float* exp_avg,
           float* exp_avg_sq, BFloat16* compute, std::size_t count);
void adamw(const AdamWNumbers& numbers, const double* gradient, double* weight, double* exp_avg,
           double* exp_avg_sq, BFloat16* compute, std::size_t count);

/// g = gradient * scale + weight_decay * w; with momentum: b = momentum b + one_minus_dampening g
/// (b = g on the first step), g = b, or g + momentum b for Nesterov; w -= rate g.
struct SgdNumbers {
  double scale = 1, weight_decay = 0, momentum = 0, one_minus_dampening = 1, rate = 0;
  bool nesterov = false, first = true;
};
/// `momentum` may be null if numbers.momentum is 0.
void sgd(const SgdNumbers& numbers, const float* gradient, float* weight, float* momentum,
         BFloat16* compute, std::size_t count);
void sgd(const SgdNumbers& numbers, const double* gradient, double* weight, double* momentum,
         BFloat16* compute, std::size_t count);

/// w = w decay - rate sign(beta1 m + (1 - beta1) g); m = beta2 m + (1 - beta2) g; sign(0) = 0.
struct LionNumbers {
  double scale = 1, decay = 1, beta1 = 0.9, one_minus_beta1 = 0.1;
  double beta2 = 0.99, one_minus_beta2 = 0.01, rate = 0;
};
void lion(const LionNumbers& numbers, const float* gradient, float* weight, float* exp_avg,
          BFloat16* compute, std::size_t count);
void lion(const LionNumbers& numbers, const double* gradient, double* weight, double* exp_avg,
          BFloat16* compute, std::size_t count);

/// m += (g - m)(1 - beta1); v = v beta2 + g g (1 - beta2).
struct MomentNumbers {
  double scale = 1, one_minus_beta1 = 0.1, beta2 = 0.999, one_minus_beta2 = 0.001;
};
void moments(const MomentNumbers& numbers, const float* gradient, float* exp_avg, float* exp_avg_sq,
             std::size_t count);
void moments(const MomentNumbers& numbers, const double* gradient, double* exp_avg,
             double* exp_avg_sq, std::size_t count);

/// LAMB's direction: u = (m / bias1) / (sqrt(v) / sqrt_bias2 + epsilon) + weight_decay w.
struct LambNumbers {
  double bias1 = 1, sqrt_bias2 = 1, epsilon = 1e-6, weight_decay = 0;
};
void lamb_direction(const LambNumbers& numbers, const float* weight, const float* exp_avg,
                    const float* exp_avg_sq, float* direction, std::size_t count);
void lamb_direction(const LambNumbers& numbers, const double* weight, const double* exp_avg,
                    const double* exp_avg_sq, double* direction, std::size_t count);

/// Adafactor's direction with the mean square factored as row * columns[i]:
/// u = gradient scale / sqrt(max(row columns[i], floor)).
struct FactoredNumbers {
  double scale = 1, row = 1, floor = 0;
};
void factored_direction(const FactoredNumbers& numbers, const float* gradient, const float* columns,
                        float* direction, std::size_t count);
void factored_direction(const FactoredNumbers& numbers, const double* gradient,
                        const double* columns, double* direction, std::size_t count);

/// average += (g g - average) blend, g = gradient scale.
void average_squares(double scale, double blend, const float* gradient, float* average,
                     std::size_t count);
void average_squares(double scale, double blend, const double* gradient, double* average,
                     std::size_t count);

/// w = w decay - rate direction.
void descend(double decay, double rate, const float* direction, float* weight, BFloat16* compute,
             std::size_t count);
void descend(double decay, double rate, const double* direction, double* weight, BFloat16* compute,
             std::size_t count);

/// sums[i] += values[i]^2, in fp64.
void add_squares(const float* values, double* sums, std::size_t count);
void add_squares(const double* values, double* sums, std::size_t count);

}  // namespace trireme::inline v0::kernel
