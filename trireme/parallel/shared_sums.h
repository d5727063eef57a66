// optim::SharedSums over a communicator: the sums over parameters whose chunks several of its ranks
// own, for LAMB's norms and Adafactor's means under ZeRO.
//
// Every rank gathers the others' nodes (chunk_sum.h) and adds them in T: the bits of one rank that
// owns everything. Parameters that one rank owns alone cost no byte. Two all-gathers a call where
// any parameter is split (node intervals, then their values), none where none is.
#pragma once

#include <memory>

#include "trireme/comm/communicator.h"
#include "trireme/optim/chunk_sum.h"

namespace trireme {
inline namespace v0 {
namespace parallel {

/// `world` outlives the result. What a rank owns of a parameter must be one run of chunks, and stay
/// the same from call to call.
std::shared_ptr<optim::SharedSums> make_shared_sums(comm::Communicator& world);

}  // namespace parallel
}  // namespace v0
}  // namespace trireme
