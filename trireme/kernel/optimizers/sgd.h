// The update of SGD with momentum (Sgd in options.h).
#pragma once

#include "trireme/kernel/optimizers/rule.h"

namespace trireme::inline v0 {
namespace kernel {

/// g = gradient * scale + weight_decay * w; with momentum: b = momentum b + one_minus_dampening g
/// (b = g on the first step), g = b, or g + momentum b for Nesterov; w -= rate g.
/// The array b may be null if there is no momentum.
struct SgdRule {
  double scale = 1, weight_decay = 0, momentum = 0, one_minus_dampening = 1, rate = 0;
  bool nesterov = false, first = true;
  static constexpr RuleShape kShape{.in = 1, .both = 2, .may_be_null = true};
  template <class Math>
  constexpr void operator()(Math math, typename Math::Value (&arrays)[3]) const {
    auto& [gradient, w, b] = arrays;
    auto g = math.multiply_add(w, math.number(weight_decay), gradient * math.number(scale));
    if (momentum != 0) {
      const auto mu = math.number(momentum);
      b = first ? g : math.multiply_add(b, mu, g * math.number(one_minus_dampening));
      g = nesterov ? math.multiply_add(b, mu, g) : b;
    }
    w = w - math.number(rate) * g;
  }
};

}  // namespace kernel

inline std::vector<std::string> Sgd::state() const {
  return momentum != 0 ? std::vector<std::string>{"momentum_buffer"} : std::vector<std::string>{};
}
inline kernel::SgdRule Sgd::rule(const kernel::StepNumbers& step) const {
  return {.scale = step.scale,
          .weight_decay = step.weight_decay,
          .momentum = momentum,
          .one_minus_dampening = 1.0 - dampening,
          .rate = step.rate,
          .nesterov = nesterov,
          .first = step.count == 1};
}

}  // namespace trireme::inline v0
