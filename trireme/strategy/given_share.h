// GivenShare describes a rank's input of forward passes that the ranks run together: the batches of
// a validation, or one micro-batch. The ranks compare their shares before they compute. Pipeline
// stages with different samples would otherwise compute a wrong number without an error.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "trireme/comm/communicator.h"
#include "trireme/kernel/assignment.h"
#include "trireme/tensor/batch.h"

namespace trireme::inline v0::parallel {

struct GivenShare {
  std::string text;         // "micro-batches 0-3 of 8 in batch 0 of 2 (...)"
  std::string advice;       // printed if ranks disagree
  std::string wrong;        // why it is not this rank's share; empty: it is
  std::uint64_t whole = 0;  // hash; equal on all ranks
  std::uint64_t own = 0;    // hash; equal on ranks that compute the same micro-batches
};

/// Checks that `batches` hold the share of `rank` in each batch; the result is in `wrong`.
GivenShare given_batches(std::span<const Batch> batches, const kernel::Assignment& places,
                         int rank);
/// Shapes must be equal on all ranks; values, on ranks that compute the same micro-batches.
GivenShare given_micro_batch(const MicroBatch& micro);

/// Collective. If the shares disagree, throws UnevenInput on every rank, naming two ranks and what
/// each was given. `operation`: for the message.
void require_agreement(comm::Communicator& world, const kernel::Assignment& places,
                       const GivenShare& mine, const std::string& operation,
                       const std::string& host);

}  // namespace trireme::inline v0::parallel
