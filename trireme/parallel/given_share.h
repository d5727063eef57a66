// GivenShare: what a rank was given for forward passes that the ranks go through together: a
// validation's batches, or one micro-batch. The ranks compare theirs before they compute: a stage
// of a pipeline that has other samples than the next one gives a number, and a wrong one.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "trireme/comm/communicator.h"
#include "trireme/kernel/assignment.h"
#include "trireme/tensor/batch.h"

namespace trireme {
inline namespace v0 {
namespace parallel {

struct GivenShare {
  std::string text;         // "micro-batches 0-3 of 8 in batch 0 of 2 (...)"
  std::string advice;       // where ranks disagree
  std::string wrong;        // why it is not this rank's share; empty: it is
  std::uint64_t whole = 0;  // the same on all ranks
  std::uint64_t own = 0;    // the same on all ranks of a place
};

/// `rank` of `places` has its share of each batch.
GivenShare given_batches(std::span<const Batch> batches, const kernel::Assignment& places,
                         int rank);
/// Shapes are the same on all ranks, values on all ranks of a place.
GivenShare given_micro_batch(const MicroBatch& micro);

/// Collective. UnevenInput on every rank, naming two ranks and what each was given, unless they
/// agree. `operation`: for the message.
void require_agreement(comm::Communicator& world, const kernel::Assignment& places,
                       const GivenShare& mine, const std::string& operation,
                       const std::string& host);

}  // namespace parallel
}  // namespace v0
}  // namespace trireme
