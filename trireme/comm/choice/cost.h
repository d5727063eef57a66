// The cost of any algorithm, counted on its resolved routes. Pure functions.
#pragma once

#include <span>
#include <vector>

#include "trireme/comm/rounds/registry.h"
#include "trireme/comm/rounds/route.h"
#include "trireme/plan/tuning.h"

namespace trireme::inline v0::comm {

/// The terms that each rank sends, as a multiple of the buffer. Assumes equal chunks.
std::vector<double> buffers_sent(std::span<const Route> routes);

/// The cost shape of `routes` (one per rank) in the alpha-beta-gamma model. A rank begins its next
/// round when all messages of the last one have arrived. The result holds the longest dependency
/// chain, separately in messages, bytes and additions. A term that is a partial sum counts as
/// `partial` terms, a leaf or the whole sum as one.
plan::CostShape shape_of(std::span<const Route> routes, double partial = 1);

/// The same for `entry`, recorded and resolved for `size` ranks with `total` leaves.
plan::CostShape shape_of(const AlgorithmEntry& entry, int size, std::uint32_t total, int root = 0,
                         const std::vector<int>& hosts = {}, int pieces = 1, double partial = 1);

}  // namespace trireme::inline v0::comm
