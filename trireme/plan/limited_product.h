// A product that cannot overflow: limited to about an exabyte, so that sums of several do not
// overflow either. Nothing that large fits.
#pragma once

#include <algorithm>
#include <cstdint>

namespace trireme::inline v0::plan {

inline std::int64_t times(std::int64_t a, std::int64_t b) {
  constexpr std::int64_t kMost = std::int64_t{1} << 59;
  std::int64_t product = 0;
  return __builtin_mul_overflow(a, b, &product) ? kMost : std::min(product, kMost);
}

}  // namespace trireme::inline v0::plan
