// Sends tokens to the ranks that have their experts, and the experts' outputs back (GShard,
// Lepikhin et al. 2020, arXiv:2006.16668), under autograd. Rank r of N has experts r E/N ... (r +
// 1) E/N - 1.
//
// Only tokens that have a place in an expert are sent: first E numbers of each rank (how many for
// which expert), then the rows by all_to_all; backward sends the other way. An expert's rows are in
// the order of ranks. If rank r has the r-th part of the sequences, this is one process's order.
#pragma once

#include "trireme/comm/communicator.h"
#include "trireme/models/experts.h"

namespace trireme::inline v0::parallel {

/// A collective of `group` in forward and in backward. `group` outlives it and all graphs. Ranks
/// may bring different numbers of rows, or none. The group's size divides `experts`.
models::ExpertExchange expert_exchange(comm::Communicator& group, int experts);

}  // namespace trireme::inline v0::parallel
