// median() of a few numbers. A pure function.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace trireme::inline v0 {

/// The middle value; the larger of two middle values; 0 without values.
inline double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace trireme::inline v0
