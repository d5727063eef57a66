// What an algorithm costs, counted on its resolved routes: nothing here knows a formula by heart,
// so the figures hold for one's own algorithms too. Pure functions.
#pragma once

#include <span>
#include <vector>

#include "trireme/comm/registry.h"
#include "trireme/comm/route.h"
#include "trireme/plan/tuning.h"

namespace trireme {
inline namespace v0 {
namespace comm {

/// Chunks sent by each rank, as multiples of the buffer (equal chunks assumed).
std::vector<double> buffers_sent(std::span<const Route> routes);

/// The cost shape of `routes` (one per rank) under α–β–γ: a rank may begin its next round when all
/// of the last is there, so round k of a rank starts after round k-1 of it and of those it hears
/// from. The longest such way, separately in messages, bytes and additions. A partial
/// sum that is sent counts as `partial` buffers, a leaf or the whole sum as one.
plan::CostShape shape_of(std::span<const Route> routes, double partial = 1);

/// Records and resolves `entry` for `size` ranks with `total` leaves and counts it.
plan::CostShape shape_of(const AlgorithmEntry& entry, int size, std::uint32_t total, int root = 0,
                         const std::vector<int>& hosts = {}, int pieces = 1);

}  // namespace comm
}  // namespace v0
}  // namespace trireme
