// Adagrad: its options, and its update.
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

/// A rate for each element that falls with the squares of its gradients (Duchi et al. 2011, JMLR
/// 12), as torch.optim.Adagrad.
struct Adagrad {
  double learning_rate = 1e-2;
  double epsilon = 1e-10, weight_decay = 0;
  std::vector<ParameterGroup> groups = {};

  static constexpr std::string_view kName = "adagrad";
  static Adagrad from(const OptimizerKeys& keys) {
    return {keys.learning_rate, keys.epsilon, keys.weight_decay, keys.groups};
  }
  OptimizerKeys keys() const {
    return {.learning_rate = learning_rate,
            .weight_decay = weight_decay,
            .epsilon = epsilon,
            .groups = groups};
  }
  std::vector<std::string> state() const { return {"sum"}; }
  using Rules = kernel::RuleList<kernel::AdagradRule>;
  kernel::AdagradRule rule(const kernel::StepNumbers& step) const {
    return {.scale = step.scale,
            .weight_decay = step.weight_decay,
            .epsilon = epsilon,
            .rate = step.rate};
  }
};

}  // namespace trireme::inline v0
