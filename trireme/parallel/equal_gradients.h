// Whether a block that ranks go through together takes its parameters as LayerFactory hands them
// out: then what all of them have whole has one gradient, in every bit.
#pragma once

#include <span>

#include "trireme/comm/communicator.h"
#include "trireme/optim/owned_slice.h"

namespace trireme {
inline namespace v0 {
namespace parallel {

/// Collective over `group`, whose ranks give the same slices, with their gradients. ConfigError on
/// all of them, naming the first parameter whose gradients differ: without it the ranks would train
/// different models.
void require_equal_gradients(comm::Communicator& group, std::span<const optim::OwnedSlice> slices);

}  // namespace parallel
}  // namespace v0
}  // namespace trireme
