// All optimizers: a new one is a file like lion.h, its #include here, and its options in options.h.
#pragma once

#include <utility>
#include <variant>

#include "trireme/kernel/optimizers/adafactor.h"
#include "trireme/kernel/optimizers/adagrad.h"
#include "trireme/kernel/optimizers/adamw.h"
#include "trireme/kernel/optimizers/ftrl.h"
#include "trireme/kernel/optimizers/lamb.h"
#include "trireme/kernel/optimizers/lion.h"
#include "trireme/kernel/optimizers/options.h"
#include "trireme/kernel/optimizers/sgd.h"

namespace trireme::inline v0 {

namespace kernel {

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
