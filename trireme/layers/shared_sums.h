// optim::SharedSums over a communicator: completes sums over parameters whose chunks belong to
// several of its ranks, for LAMB's norms and Adafactor's means under ZeRO.
//
// Every rank gathers the others' nodes (chunk_sum.h) and adds them in the order of T, so the bits
// are those of one rank that owns everything. The first call gathers who owns which chunks; if any
// parameter is split, each call takes two all-gathers more (node intervals, then their values).
#pragma once

#include <memory>

#include "trireme/comm/communicator.h"
#include "trireme/optim/chunk_sum.h"

namespace trireme::inline v0::parallel {

/// `world` outlives the result. A rank owns one run of a parameter's chunks, the same in each call.
std::shared_ptr<optim::SharedSums> make_shared_sums(comm::Communicator& world);

}  // namespace trireme::inline v0::parallel
