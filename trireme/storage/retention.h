// Retention: which checkpoints of a run stay. A plain value and a pure function. No LibTorch.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace trireme::inline v0::storage {

/// A checkpoint stays if any of the three keeps it.
struct Retention {
  Retention(int newest = 3) : newest(newest) {}  // NOLINT: "keep 3" is written as 3
  Retention(int newest, double hours, int best) : newest(newest), hours(hours), best(best) {}
  int newest = 3;    // this many newest
  double hours = 0;  // all that were saved at most this long before the newest one
  int best = 0;      // this many with the least validation loss; the older one among equals
  /// Whether the number of the steps alone decides.
  bool counts_only() const noexcept { return hours <= 0 && best <= 0; }
};

struct SavedCheckpoint {
  std::int64_t step = 0;
  std::optional<double> seconds;          // since 1970, when it was saved; unknown: not kept by age
  std::optional<double> validation_loss;  // unknown or no number: not among the best
};

/// The steps to remove, ascending. `saved` is in the order of the steps. Ages count from the newest
/// checkpoint, not from now, and a clock that jumps removes none of the `newest`.
std::vector<std::int64_t> outdated(const std::vector<SavedCheckpoint>& saved,
                                   const Retention& retention);

}  // namespace trireme::inline v0::storage
