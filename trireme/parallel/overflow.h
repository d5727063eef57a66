// A sum that overflows although every rank's part is finite. All ranks hold the same bits of it, so
// all come to the same refusal without another vote.
#pragma once

#include <span>
#include <string>

#include "trireme/comm/communicator.h"
#include "trireme/optim/owned_slice.h"

namespace trireme {
inline namespace v0 {
namespace parallel {

/// Throws StepRefused (exit code 21) naming the first parameter whose summed gradient holds an
/// infinity or a NaN. Reads each gradient once.
void refuse_overflow(std::span<const optim::OwnedSlice> slices, const comm::Communicator& world,
                     const std::string& host, long step);

}  // namespace parallel
}  // namespace v0
}  // namespace trireme
