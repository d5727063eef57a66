// Counts of small whole numbers (how stale gradients were) in few rows, for people: the numbers 0 to
// 3 each have a row, and then come 4-7, 8-15, 16-31, ... Pure functions.
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

/// From the least number that was counted to the greatest; bins between them may be empty. Numbers
/// are at least 0.
std::vector<CountBin> doubling_bins(const std::map<std::int64_t, std::int64_t>& counts);

}  // namespace trireme::inline v0
