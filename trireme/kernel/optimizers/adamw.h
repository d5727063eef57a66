// The update of AdamW (options.h).
#pragma once

#include <cmath>

#include "trireme/kernel/optimizers/rule.h"

namespace trireme::inline v0 {
namespace kernel {

/// The combined constants of one step (formula and order of torch.optim.AdamW):
/// w *= decay; m += (g - m)(1 - beta1); v = v beta2 + g g (1 - beta2);
/// w -= step_size * m / (sqrt(v) / sqrt_bias2 + epsilon), where g = gradient * scale.
struct AdamWRule {
  double scale = 1, decay = 1, one_minus_beta1 = 0.1, beta2 = 0.999, one_minus_beta2 = 0.001;
  double step_size = 0, sqrt_bias2 = 1, epsilon = 1e-8;
  static constexpr RuleShape kShape{.in = 1, .both = 3};
  template <class Math>
  constexpr void operator()(Math math, typename Math::Value (&arrays)[4]) const {
    auto& [gradient, w, m, v] = arrays;
    const auto g = gradient * math.number(scale);
    m = math.multiply_add(g - m, math.number(one_minus_beta1), m);
    v = math.multiply_add(g * g, math.number(one_minus_beta2), v * math.number(beta2));
    const auto divisor = math.sqrt(v) / math.number(sqrt_bias2) + math.number(epsilon);
    w = w * math.number(decay) - math.number(step_size) * (m / divisor);
  }
};

}  // namespace kernel

inline std::vector<std::string> AdamW::state() const { return {"exp_avg", "exp_avg_sq"}; }
inline kernel::AdamWRule AdamW::rule(const kernel::StepNumbers& step) const {
  const auto count = static_cast<double>(step.count);
  return {.scale = step.scale,
          .decay = 1.0 - step.rate * step.weight_decay,
          .one_minus_beta1 = 1.0 - beta1,
          .beta2 = beta2,
          .one_minus_beta2 = 1.0 - beta2,
          .step_size = step.rate / (1.0 - std::pow(beta1, count)),
          .sqrt_bias2 = std::sqrt(1.0 - std::pow(beta2, count)),
          .epsilon = epsilon};
}

}  // namespace trireme::inline v0
