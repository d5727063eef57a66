// Checks that every parameter group's pattern matches a parameter; for optimizers and plans.
#pragma once

#include <span>

#include "trireme/optim/optimizer.h"

namespace trireme {
inline namespace v0 {
namespace optim {

/// Throws ConfigError if a group matches none of `parameters`.
void check_groups(std::span<const ParameterInfo> parameters,
                  std::span<const ParameterGroup> groups);

}  // namespace optim
}  // namespace v0
}  // namespace trireme
