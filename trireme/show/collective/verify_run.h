// One simulated run of an all-reduce on generated data, compared with a directly computed sum.
// Deterministic for its seed.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trireme/comm/rounds/registry.h"

namespace trireme::inline v0::show {

/// Runs `entry` on `ranks`, placed on `hosts` (Algorithm::host_of_rank): with element counts that
/// divide evenly and that do not, with one and with several leaves per rank, in F32 (compared bit
/// for bit) and I64. Returns what the busiest rank sent, in buffers. Throws Error if the sum or the
/// bytes are wrong, or if a rank waits forever.
double run_all_reduce(const comm::AlgorithmEntry& entry, int ranks, const std::vector<int>& hosts,
                      std::uint64_t seed);

}  // namespace trireme::inline v0::show
