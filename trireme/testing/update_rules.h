// A rule of every kind with numbers that use all of it, for tests of its implementations.
#pragma once

#include <tuple>

#include "trireme/kernel/optimizers/optimizers.h"

namespace trireme::inline v0::testing {

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
  return std::tuple(AdamWRule{.scale = 0.3, .decay = 0.999, .step_size = 0.01, .sqrt_bias2 = 0.5},
                    sgd, plain, LionRule{.scale = 0.3, .decay = 0.99, .rate = 0.125},
                    AdagradRule{.scale = 0.3, .weight_decay = 0.1, .rate = 0.1},
                    FtrlRule{.scale = 0.3, .rate = 0.1, .threshold = 0.02, .ridge = 0.1},
                    LambMoments{.scale = 0.3},
                    LambDirection{.bias1 = 0.3, .sqrt_bias2 = 0.2, .weight_decay = 0.1},
                    FactoredDirection{.scale = 0.3, .row = 0.7, .floor = 0.05},
                    AverageSquares{.scale = 0.3, .blend = 0.25},
                    Descend{.decay = 0.99, .rate = 0.1});
}

}  // namespace trireme::inline v0::testing
