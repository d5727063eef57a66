// The two element-wise parts of Adafactor's step (options.h); optim/adafactor.cc has the others.
#pragma once

#include "trireme/kernel/optimizers/rule.h"

namespace trireme::inline v0 {
namespace kernel {

/// The direction with the mean square factored as row * columns[i]:
/// u = gradient scale / sqrt(max(row columns[i], floor)).
struct FactoredDirection {
  double scale = 1, row = 1, floor = 0;
  static constexpr RuleShape kShape{.in = 2, .out = 1};
  template <class Math>
  constexpr void operator()(Math math, typename Math::Value (&arrays)[3]) const {
    auto& [gradient, column, direction] = arrays;
    const auto square = math.max(math.number(floor), math.number(row) * column);
    direction = gradient * math.number(scale) / math.sqrt(square);
  }
};

/// average += (g g - average) blend, where g = gradient * scale.
struct AverageSquares {
  double scale = 1, blend = 0;
  static constexpr RuleShape kShape{.in = 1, .both = 1};
  template <class Math>
  constexpr void operator()(Math math, typename Math::Value (&arrays)[2]) const {
    auto& [gradient, average] = arrays;
    const auto g = gradient * math.number(scale);
    average = math.multiply_add(g * g - average, math.number(blend), average);
  }
};

}  // namespace kernel

inline std::vector<std::string> Adafactor::state() const { return {"variance"}; }

}  // namespace trireme::inline v0
