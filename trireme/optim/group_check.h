// Checks that every parameter group's pattern matches a parameter; for optimizers and plans.
#pragma once

#include <span>

#include "trireme/optim/optimizer.h"

namespace trireme::inline v0::optim {

/// Throws ConfigError if a group matches none of `parameters`.
void check_groups(std::span<const ParameterInfo> parameters,
                  std::span<const ParameterGroup> groups);

}  // namespace trireme::inline v0::optim
