// The two element-wise parts of Lamb's step (options.h); optim/lamb.cc has the others.
#pragma once

#include "trireme/kernel/optimizers/rule.h"

namespace trireme::inline v0 {
namespace kernel {

/// m += (g - m)(1 - beta1); v = v beta2 + g g (1 - beta2), where g = gradient * scale.
struct LambMoments {
  double scale = 1, one_minus_beta1 = 0.1, beta2 = 0.999, one_minus_beta2 = 0.001;
  static constexpr RuleShape kShape{.in = 1, .both = 2};
  template <class Math>
  constexpr void operator()(Math math, typename Math::Value (&arrays)[3]) const {
    auto& [gradient, m, v] = arrays;
    const auto g = gradient * math.number(scale);
    m = math.multiply_add(g - m, math.number(one_minus_beta1), m);
    v = math.multiply_add(g * g, math.number(one_minus_beta2), v * math.number(beta2));
  }
};

/// u = (m / bias1) / (sqrt(v) / sqrt_bias2 + epsilon) + weight_decay w.
struct LambDirection {
  double bias1 = 1, sqrt_bias2 = 1, epsilon = 1e-6, weight_decay = 0;
  static constexpr RuleShape kShape{.in = 3, .out = 1};
  template <class Math>
  constexpr void operator()(Math math, typename Math::Value (&arrays)[4]) const {
    auto& [w, m, v, direction] = arrays;
    const auto divisor = math.sqrt(v) / math.number(sqrt_bias2) + math.number(epsilon);
    direction = math.multiply_add(w, math.number(weight_decay), m / math.number(bias1) / divisor);
  }
};

}  // namespace kernel

inline std::vector<std::string> Lamb::state() const { return {"exp_avg", "exp_avg_sq"}; }

}  // namespace trireme::inline v0
