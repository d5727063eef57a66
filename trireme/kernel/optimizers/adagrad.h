// The update of Adagrad (options.h).
#pragma once

#include "trireme/kernel/optimizers/rule.h"

namespace trireme::inline v0 {
namespace kernel {

/// g = gradient * scale + weight_decay * w; n = n + g g; w = w - rate g / (sqrt(n) + epsilon).
struct AdagradRule {
  double scale = 1, weight_decay = 0, epsilon = 1e-10, rate = 0;
  static constexpr RuleShape kShape{.in = 1, .both = 2};
  template <class Math>
  constexpr void operator()(Math math, typename Math::Value (&arrays)[3]) const {
    auto& [gradient, w, n] = arrays;
    const auto g = math.multiply_add(w, math.number(weight_decay), gradient * math.number(scale));
    n = math.multiply_add(g, g, n);
    w = w - math.number(rate) * (g / (math.sqrt(n) + math.number(epsilon)));
  }
};

}  // namespace kernel

inline std::vector<std::string> Adagrad::state() const { return {"sum"}; }
inline kernel::AdagradRule Adagrad::rule(const kernel::StepNumbers& step) const {
  return {.scale = step.scale,
          .weight_decay = step.weight_decay,
          .epsilon = epsilon,
          .rate = step.rate};
}

}  // namespace trireme::inline v0
