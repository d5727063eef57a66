// Update rules of every kind, with options that use all of their code, and their updates on the
// CPU. For tests of other implementations.
#pragma once

#include <tuple>
#include <variant>
#include <vector>

#include "trireme/kernel/optimizers/apply.h"
#include "trireme/kernel/optimizers/optimizers.h"

namespace trireme::inline v0::testing {

/// The rule of the third step of an optimizer with its default numbers; none if its step has sums.
template <class Options>
auto default_rule() {
  if constexpr (requires(Options own) { own.rule(kernel::StepNumbers{}); })
    return std::tuple(
        Options{}.rule({.count = 3, .rate = 0.125, .weight_decay = 0.1, .scale = 0.3}));
  else
    return std::tuple<>();
}
template <class... Options>
auto default_rules(const std::variant<Options...>*) {
  return std::tuple_cat(default_rule<Options>()...);
}

/// In any order; each rule of kernel::AllRules at least once.
inline auto update_rules() {
  using namespace kernel;
  const SgdRule sgd{.scale = 0.3,
                    .weight_decay = 0.1,
                    .momentum = 0.9,
                    .one_minus_dampening = 0.75,
                    .rate = 0.1,
                    .nesterov = true,
                    .first = false};
  const SgdRule plain{.scale = 0.3, .rate = 0.1};
  return std::tuple_cat(
      default_rules(static_cast<const OptimizerOptions*>(nullptr)),
      std::tuple(sgd, plain, FtrlRule{.scale = 0.3, .rate = 0.1, .threshold = 0.02, .ridge = 0.1},
                 LambMoments{.scale = 0.3},
                 LambDirection{.bias1 = 0.3, .sqrt_bias2 = 0.2, .weight_decay = 0.1},
                 FactoredDirection{.scale = 0.3, .row = 0.7, .floor = 0.05},
                 AverageSquares{.scale = 0.3, .blend = 0.25}, Descend{.decay = 0.99, .rate = 0.1}));
}

/// kernel::apply() of the rule to `arrays`, in the rule's order.
template <class T, class Rule>
void update_on_cpu(const Rule& rule, std::vector<std::vector<T>>& arrays) {
  constexpr kernel::RuleShape kShape = Rule::kShape;
  const T* in[kShape.in] = {};
  T* out[kShape.both + kShape.out] = {};
  for (int k = 0; k < kShape.in; ++k) in[k] = arrays[static_cast<std::size_t>(k)].data();
  for (int k = kShape.in; k < kShape.arrays(); ++k)
    out[k - kShape.in] = arrays[static_cast<std::size_t>(k)].data();
  kernel::apply(rule, in, out, nullptr, arrays.front().size());
}

}  // namespace trireme::inline v0::testing
