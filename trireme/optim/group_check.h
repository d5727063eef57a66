// Whether the patterns of parameter groups match any parameter: one check for optimizers and for
// whoever plans a job.
#pragma once

#include <span>

#include "trireme/optim/optimizer.h"

namespace trireme {
inline namespace v0 {
namespace optim {

/// Throws ConfigError where a group matches none of `parameters`.
void check_groups(std::span<const ParameterInfo> parameters,
                  std::span<const ParameterGroup> groups);

}  // namespace optim
}  // namespace v0
}  // namespace trireme
