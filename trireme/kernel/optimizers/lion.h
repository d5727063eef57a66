// The update of Lion (options.h).
#pragma once

#include "trireme/kernel/optimizers/rule.h"

namespace trireme::inline v0 {
namespace kernel {

/// w = w decay - rate sign(beta1 m + (1 - beta1) g); m = beta2 m + (1 - beta2) g; sign(0) = 0.
struct LionRule {
  double scale = 1, decay = 1, beta1 = 0.9, one_minus_beta1 = 0.1;
  double beta2 = 0.99, one_minus_beta2 = 0.01, rate = 0;
  static constexpr RuleShape kShape{.in = 1, .both = 2};
  template <class Math>
  constexpr void operator()(Math math, typename Math::Value (&arrays)[3]) const {
    auto& [gradient, w, m] = arrays;
    const auto g = gradient * math.number(scale);
    const auto mixed = math.multiply_add(m, math.number(beta1), g * math.number(one_minus_beta1));
    w = w * math.number(decay) - math.number(rate) * math.sign(mixed);
    m = math.multiply_add(m, math.number(beta2), g * math.number(one_minus_beta2));
  }
};

}  // namespace kernel

inline std::vector<std::string> Lion::state() const { return {"exp_avg"}; }
inline kernel::LionRule Lion::rule(const kernel::StepNumbers& step) const {
  return {.scale = step.scale,
          .decay = 1.0 - step.rate * step.weight_decay,
          .beta1 = beta1,
          .one_minus_beta1 = 1.0 - beta1,
          .beta2 = beta2,
          .one_minus_beta2 = 1.0 - beta2,
          .rate = step.rate};
}

}  // namespace trireme::inline v0
