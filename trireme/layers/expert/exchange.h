// Sends tokens to the ranks that have their experts, and the experts' outputs back (GShard,
// Lepikhin et al. 2020, arXiv:2006.16668), under autograd. Each of N ranks has E/N consecutive
// experts, in rank order.
//
// Only tokens that an expert accepts are sent: first E numbers of each rank (how many rows for each
// expert), then the rows, both by all_to_all; backward sends the other way. An expert's rows are in
// the order of ranks. If rank r has the r-th part of the sequences, this is one process's order.
#pragma once

#include "trireme/comm/communicator.h"
#include "trireme/models/experts.h"

namespace trireme::inline v0::parallel {

/// A collective of `group` in forward and in backward. `group` outlives it and all graphs. Ranks
/// may bring different numbers of rows, or none. The group's size divides `experts`.
models::ExpertExchange expert_exchange(comm::Communicator& group, int experts);

}  // namespace trireme::inline v0::parallel
