// One simulated run of an all-reduce on made-up data, held against a sum made by hand.
// Deterministic for its seed.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trireme/comm/registry.h"

namespace trireme {
inline namespace v0 {
namespace show {

/// Runs `entry` on `ranks`, placed on `hosts` (Algorithm::host_of_rank), with counts of elements
/// that divide and such that do not, one leaf per rank and several, in F32 (to the bit) and I64.
/// Returns what the busiest rank sent, in buffers. An Error says what is wrong: the sum, the bytes,
/// or a rank that waits for ever.
double run_all_reduce(const comm::AlgorithmEntry& entry, int ranks, const std::vector<int>& hosts,
                      std::uint64_t seed);

}  // namespace show
}  // namespace v0
}  // namespace trireme
