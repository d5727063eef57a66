// Counts of small whole numbers (the staleness of gradients) in few rows: 0, 1, 2, 3, then 4-7,
// 8-15, 16-31, ... Pure functions.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace trireme::inline v0 {

struct CountBin {
  std::string label;  // "2", "8-15"
  std::int64_t count = 0;
  double share = 0;  // of all counts
};

/// A share: "0 %", "0.4 %", "23 %".
std::string percent_text(double share);

/// Bins from the least to the greatest counted number; some between may be empty. CheckFailure if a
/// number is negative.
std::vector<CountBin> doubling_bins(const std::map<std::int64_t, std::int64_t>& counts);

}  // namespace trireme::inline v0
