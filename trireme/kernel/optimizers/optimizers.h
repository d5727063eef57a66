// The rules of all optimizers (options.h), and the numbers of a configuration.
#pragma once

#include <utility>
#include <variant>
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

template <class... List>
struct Joined;
template <class... Rule>
struct Joined<RuleList<Rule...>> {
  using Rules = RuleList<Rule...>;
};
template <class... A, class... B, class... Rest>
struct Joined<RuleList<A...>, RuleList<B...>, Rest...> : Joined<RuleList<A..., B...>, Rest...> {};
template <class... Options>
Joined<RuleList<Descend>, typename Options::Rules...> rules_of(const std::variant<Options...>&);
/// The rules of all optimizers.
using AllRules = decltype(rules_of(std::declval<OptimizerOptions>()))::Rules;

}  // namespace kernel
}  // namespace trireme::inline v0
