// Lion: its options, and its update.
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

/// The sign of an interpolated momentum (Chen et al. 2023, arXiv:2302.06675, algorithm 2).
struct Lion {
  double learning_rate = 1e-4;
  double beta1 = 0.9, beta2 = 0.99, weight_decay = 0;
  std::vector<ParameterGroup> groups = {};

  static constexpr std::string_view kName = "lion";
  static Lion from(const OptimizerKeys& keys) {
    return {keys.learning_rate, keys.beta1, keys.beta2, keys.weight_decay, keys.groups};
  }
  OptimizerKeys keys() const {
    return {.learning_rate = learning_rate,
            .weight_decay = weight_decay,
            .beta1 = beta1,
            .beta2 = beta2,
            .groups = groups};
  }
  std::vector<std::string> state() const { return {"exp_avg"}; }
  using Rules = kernel::RuleList<kernel::LionRule>;
  kernel::LionRule rule(const kernel::StepNumbers& step) const {
    return {.scale = step.scale,
            .decay = 1.0 - step.rate * step.weight_decay,
            .beta1 = beta1,
            .one_minus_beta1 = 1.0 - beta1,
            .beta2 = beta2,
            .one_minus_beta2 = 1.0 - beta2,
            .rate = step.rate};
  }
};

}  // namespace trireme::inline v0
