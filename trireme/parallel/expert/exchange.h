// Tokens on their way to the ranks that have their experts, and what those made of them on its way
// back (GShard, Lepikhin et al. 2020, arXiv:2006.16668), under autograd. Rank r of N has experts
// r E/N ... (r + 1) E/N - 1.
//
// Only tokens that have a place travel: first E numbers of each rank (how many for which expert),
// then the rows by all_to_all, in backward the other way. An expert's rows lie in the order of
// ranks, so that where rank r has the r-th part of the sequences they are in one process's order.
#pragma once

#include "trireme/comm/communicator.h"
#include "trireme/models/experts.h"

namespace trireme {
inline namespace v0 {
namespace parallel {

/// A collective of `group`, which outlives it and all graphs, in forward and in backward; ranks may
/// bring different numbers of rows, or none. The group's size divides `experts`.
models::ExpertExchange expert_exchange(comm::Communicator& group, int experts);

}  // namespace parallel
}  // namespace v0
}  // namespace trireme
