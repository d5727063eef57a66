// How long each block of a model takes, measured: what a pipeline is balanced by.
//
// Blocks are built one at a time, run forward and back on a micro-batch, and let go of, so that no
// more than one is in memory with the values that later blocks read. Nothing of it shows in a
// training: blocks are built again, from the same seeds. One thread.
#pragma once

#include <cstdint>
#include <vector>

#include "trireme/base/waiter.h"
#include "trireme/models/block.h"
#include "trireme/plan/partition.h"
#include "trireme/tensor/batch.h"

namespace trireme {
inline namespace v0 {
namespace parallel {

/// Seconds (the least of several runs), parameters' bytes and the value's bytes of every block, on
/// the clock of `waiter`: a simulated one stands still, and all take 0 s.
std::vector<plan::BlockCost> profile_blocks(const models::Blocks& model, const MicroBatch& micro,
                                            std::uint64_t seed, const Waiter& waiter);

}  // namespace parallel
}  // namespace v0
}  // namespace trireme
