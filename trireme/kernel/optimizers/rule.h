// Rule: an element-wise optimizer update, written once. apply() (apply.h) runs it over fp64, and
// over fp32 with the vectors of each instruction set.
//
// A rule is a plain struct of the step's numbers, with the number of its arrays and the update of
// one element of each:
//
//     struct Descend {
//       double decay = 1, rate = 0;
//       static constexpr RuleShape kShape{.in = 1, .both = 1};
//       template <class Math>
//       constexpr void operator()(Math math, typename Math::Value (&arrays)[2]) const;
//     };
//
// `Math` has number(double), multiply_add(a, b, c) = a b + c (in fp32 rounded once, where the
// processor can), sqrt, max(number, value), which is a NaN if the value is one, and sign (-1 or 1; a
// zero or a NaN stays). An element's result depends on its own inputs only, never on its position,
// the length or the slice. Rules use no standard library: they are compiled for each instruction set
// and, as constexpr code, for GPUs (kernel/cuda/update.h).
#pragma once

#include <cstdint>
#include <vector>

#include "trireme/kernel/optimizers/options.h"

namespace trireme::inline v0 {

/// The numbers of a configuration (train.*, optimizer.*). An optimizer takes those that it has.
struct OptimizerKeys {
  double learning_rate = 1e-3, weight_decay = 0;
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;
  double momentum = 0, dampening = 0;
  bool nesterov = false;
  double beta2_decay = -0.8, update_clip = 1, smallest_scale = 1e-3, factored_epsilon = 0;
  double l1 = 0, initial_accumulator = 0.1;
  std::vector<ParameterGroup> groups = {};
};

namespace kernel {

/// The arrays of a rule, in this order: read, updated, written. The weight is the first array after
/// those that are only read.
struct RuleShape {
  int in = 0, both = 0, out = 0;
  bool may_be_null = false;  // the arrays after the weight
  constexpr int arrays() const noexcept { return in + both + out; }
};

/// The rules of one optimizer.
template <class... Rule>
struct RuleList {};

/// A slice's numbers in one step. `count`: steps so far, this one included.
struct StepNumbers {
  std::int64_t count = 1;
  double rate = 0, weight_decay = 0;
  double scale = 1;  // factor on the gradient
};

/// w = w decay - rate direction.
struct Descend {
  double decay = 1, rate = 0;
  static constexpr RuleShape kShape{.in = 1, .both = 1};
  template <class Math>
  constexpr void operator()(Math math, typename Math::Value (&arrays)[2]) const {
    auto& [direction, w] = arrays;
    w = w * math.number(decay) - math.number(rate) * direction;
  }
};

}  // namespace kernel
}  // namespace trireme::inline v0
