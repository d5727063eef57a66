// The options of all optimizers, which a program gives a Strategy: AdamW{.learning_rate = 6e-4}.
//
// An optimizer is a file such as lion.inc, and its line in list.inc. The file has the update (a
// rule) and a struct: the numbers with their defaults, the name, the names of the state, and the
// rule of a step. numbers() refers to the numbers in the struct itself, or to those of the same
// names in OptimizerKeys; check() refuses some of those that only this optimizer has. If the step
// needs sums over whole parameters, it is a file in optim/ instead of rule(). Plain values.
#pragma once

#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <variant>
#include <vector>

namespace trireme::inline v0 {

/// Other numbers for the parameters whose name matches `match` ('*': any characters, '?': one). The
/// first matching group counts. A pattern that matches no parameter is a ConfigError.
struct ParameterGroup {
  std::string match;
  std::optional<double> weight_decay;  // none: the optimizer's, for matrices only
  double rate_factor = 1;              // factor on the learning rate
};

namespace kernel {

/// The arrays of a rule, in this order: read, updated, written. The weight is the first array after
/// those that are only read.
///
/// A rule is an element-wise update, written once: a plain struct of the step's numbers, with its
/// kShape and the update of one element of each array, such as Descend (optimizers.h). apply()
/// (apply.h) runs it over fp64, and over fp32 with the vectors of each instruction set. `Math` has
/// number(double), multiply_add(a, b, c) = a b + c (in fp32 rounded once, where the processor can),
/// sqrt, max(number, value), which is a NaN if the value is one, and sign (-1 or 1; a zero or a NaN
/// stays). An element's result depends on its own inputs only, never on its position, the length or
/// the slice. Rules use no standard library: they are compiled for each instruction set and, as
/// constexpr code, for GPUs (kernel/cuda/update.h).
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

// Ignores the first type: TRIREME_OPTIMIZER puts a comma before each optimizer.
template <class, class... Options>
using VariantOf = std::variant<Options...>;

}  // namespace kernel

#include "trireme/kernel/optimizers/list.inc"

#define TRIREME_OPTIMIZER(Options) , Options
using OptimizerOptions = kernel::VariantOf<void
#include "trireme/kernel/optimizers/list.inc"
                                           >;
#undef TRIREME_OPTIMIZER

}  // namespace trireme::inline v0
