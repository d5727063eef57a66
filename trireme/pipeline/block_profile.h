// Measures the time that each block of a model takes. Pipelines are balanced by these times.
//
// Blocks are built one at a time, run forward and backward on a micro-batch, and destroyed. At most
// one block is in memory, with the values that later blocks read. On a device, a time ends when the
// device has computed. A training later builds its blocks anew from the same seeds. One thread.
#pragma once

#include <cstdint>
#include <vector>

#include "trireme/base/waiter.h"
#include "trireme/models/block.h"
#include "trireme/plan/partition/partition.h"
#include "trireme/tensor/batch.h"

namespace trireme::inline v0::parallel {

/// For every block: seconds (the minimum of several runs), bytes of parameters and bytes of output.
/// Reads the clock of `waiter`; a simulated clock stands still, so all blocks take 0 s.
std::vector<plan::BlockCost> profile_blocks(const models::Blocks& model, const MicroBatch& micro,
                                            std::uint64_t seed, const Waiter& waiter,
                                            Device device = {});

}  // namespace trireme::inline v0::parallel
