// The update of Ftrl (options.h).
#pragma once

#include "trireme/kernel/optimizers/rule.h"

namespace trireme::inline v0 {
namespace kernel {

/// TensorFlow's Ftrl with learning_rate_power = -1/2, which it equals while the rate is constant. `n`
/// is its accumulator without the initial value; `z` is its `linear` times the rate. A rate of 0 needs
/// no division:
/// g = gradient * scale; r = sqrt(initial + n); n = n + g g; r' = sqrt(initial + n);
/// z = z + rate g - (r' - r) w; w = -sign(z) max(|z| - threshold, 0) / (r' + ridge).
/// In the first step z starts from -r w, which is TensorFlow's 0 for weights that start at 0, and
/// keeps other initial weights, which TensorFlow's first step forgets.
struct FtrlRule {
  double scale = 1, initial = 0.1, rate = 0;
  double threshold = 0, ridge = 0;  // rate * l1, rate * 2 l2
  bool first = true;
  static constexpr RuleShape kShape{.in = 1, .both = 3};
  template <class Math>
  constexpr void operator()(Math math, typename Math::Value (&arrays)[4]) const {
    auto& [gradient, w, n, z] = arrays;
    const auto g = gradient * math.number(scale);
    const auto before = math.sqrt(n + math.number(initial));
    if (first) z = z - before * w;
    if (rate == 0) return;
    n = math.multiply_add(g, g, n);
    const auto root = math.sqrt(n + math.number(initial));
    z = z + math.number(rate) * g - (root - before) * w;
    const auto side = math.sign(z);
    const auto beyond = math.max(math.number(0), z * side + math.number(-threshold));
    w = math.number(-1) * side * beyond / (root + math.number(ridge));
  }
};

}  // namespace kernel

inline std::vector<std::string> Ftrl::state() const { return {"accumulator", "linear"}; }
inline kernel::FtrlRule Ftrl::rule(const kernel::StepNumbers& step) const {
  return {.scale = step.scale,
          .initial = initial_accumulator,
          .rate = step.rate,
          .threshold = step.rate * l1,
          .ridge = step.rate * step.weight_decay,
          .first = step.count == 1};
}

}  // namespace trireme::inline v0
