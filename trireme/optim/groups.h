// Each parameter's rate factor and weight decay: those of the first group that matches its name.
#pragma once

#include <span>
#include <vector>

#include "trireme/optim/optimizer.h"

namespace trireme::inline v0::optim {

struct ParameterNumbers {
  double rate_factor = 1, weight_decay = 0;
  friend bool operator==(const ParameterNumbers&, const ParameterNumbers&) = default;
};
/// Throws ConfigError if a group's pattern matches none of `parameters`.
void check_groups(std::span<const ParameterInfo> parameters,
                  std::span<const ParameterGroup> groups);
/// One entry per slice. Throws what check_groups() throws.
std::vector<ParameterNumbers> numbers_of(std::span<const OwnedSlice> slices,
                                         std::span<const ParameterInfo> parameters,
                                         std::span<const ParameterGroup> groups,
                                         double weight_decay);

}  // namespace trireme::inline v0::optim
