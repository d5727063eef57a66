// Adafactor: its options, and the two element-wise parts of its step (optim/adafactor.cc).
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
    const auto square = math.max(math.number(row) * column, math.number(floor));
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

/// Factored mean squares (Shazeer & Stern 2018, arXiv:1804.04235), as torch.optim.Adafactor: a
/// matrix [R, C] has R + C numbers of state. The learning rate bounds the relative step.
struct Adafactor {
  double learning_rate = 1e-2;
  double beta2_decay = -0.8;     // weight of the new mean square at step t: t^beta2_decay
  double epsilon = 0;            // smallest root mean square of a row; 0: the type's epsilon
  double smallest_scale = 1e-3;  // smallest size of a parameter that its step is scaled by
  double clip = 1.0;             // largest root mean square of an update, before the rate
  double weight_decay = 0;
  std::vector<ParameterGroup> groups = {};

  static constexpr std::string_view kName = "adafactor";
  static constexpr int kMoments = 0;  // per element of a matrix
  static Adafactor from(const OptimizerKeys& keys) {
    return {.learning_rate = keys.learning_rate,
            .beta2_decay = keys.beta2_decay,
            .smallest_scale = keys.smallest_scale,
            .clip = keys.update_clip,
            .weight_decay = keys.weight_decay,
            .groups = keys.groups};
  }
  OptimizerKeys keys() const {
    return {.learning_rate = learning_rate,
            .weight_decay = weight_decay,
            .beta2_decay = beta2_decay,
            .update_clip = clip,
            .smallest_scale = smallest_scale,
            .groups = groups};
  }
  std::vector<std::string> state() const { return {"variance"}; }  // of vectors only
  using Rules = kernel::RuleList<kernel::FactoredDirection, kernel::AverageSquares>;
};

}  // namespace trireme::inline v0
