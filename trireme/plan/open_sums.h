// The most sums that a rank keeps open while it adds its leaves of the tree sum (docs/numerics.md).
// Each is as large as the gradients. A pure function.
#pragma once

#include <cstdint>
#include <span>

namespace trireme::inline v0::plan {

/// For `total` leaves (micro-batches) in contiguous shares of `ranks` ranks; at least 1. Takes
/// O(ranks * log(total)^2) operations.
int open_sums(std::int64_t total, std::int64_t ranks);
/// open_sums() for shares in these proportions (kernel::LeafShares).
int open_sums(std::int64_t total, std::span<const std::uint32_t> weights);
/// The number of leaves of the rank with most.
std::int64_t largest_share(std::int64_t total, std::span<const std::uint32_t> weights);

}  // namespace trireme::inline v0::plan
