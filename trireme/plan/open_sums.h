// The most sums that a rank keeps open while it adds its leaves of the tree sum (docs/numerics.md).
// Each is as large as the gradients. A pure function.
#pragma once

#include <cstdint>

namespace trireme::inline v0::plan {

/// For `total` leaves (micro-batches) in contiguous shares of `ranks` ranks; at least 1. Takes
/// O(ranks * log(total)^2) operations.
int open_sums(std::int64_t total, std::int64_t ranks);

}  // namespace trireme::inline v0::plan
