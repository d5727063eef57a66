#include "trireme/optim/groups.h"

#include <algorithm>

#include "trireme/base/error.h"

namespace trireme::inline v0::optim {

void check_groups(std::span<const ParameterInfo> parameters,
                  std::span<const ParameterGroup> groups) {
  for (const ParameterGroup& group : groups) {
    if (std::any_of(parameters.begin(), parameters.end(),
                    [&](const ParameterInfo& one) { return matches(group.match, one.name); }))
      continue;
    throw ConfigError(
        "optimizer.groups: no parameter's name matches \"" + group.match + "\"",
        {.operation = "config",
         .advice = parameters.empty() ? "The model has no parameters."
                                      : "Names are like \"" + parameters[0].name + "\" and \"" +
                                            parameters.back().name + "\"."});
  }
}

// On a mismatch the last '*' takes one more character.
bool matches(std::string_view pattern, std::string_view name) {
  std::size_t p = 0, n = 0, star = std::string_view::npos, taken = 0;
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      taken = n;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == name[n])) {
      ++p, ++n;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      n = ++taken;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

std::vector<ParameterNumbers> numbers_of(std::span<const OwnedSlice> slices,
                                         std::span<const ParameterInfo> parameters,
                                         std::span<const ParameterGroup> groups,
                                         double weight_decay) {
  check_groups(parameters, groups);
  std::vector<ParameterNumbers> numbers;
  for (const OwnedSlice& slice : slices) {
    const auto group = std::find_if(groups.begin(), groups.end(), [&](const ParameterGroup& one) {
      return matches(one.match, slice.name);
    });
    ParameterNumbers& own = numbers.emplace_back();
    own.weight_decay = slice.decay ? weight_decay : 0.0;
    if (group == groups.end()) continue;
    own.rate_factor = group->rate_factor;
    if (group->weight_decay) own.weight_decay = *group->weight_decay;
  }
  return numbers;
}

}  // namespace trireme::inline v0::optim
