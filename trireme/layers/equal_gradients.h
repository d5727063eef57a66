// Checks that ranks which run a block together have equal gradients of the parameters that each of
// them holds whole. They are equal bit for bit if the block's layers come from its LayerFactory.
#pragma once

#include <span>

#include "trireme/comm/communicator.h"
#include "trireme/optim/owned_slice.h"

namespace trireme::inline v0::parallel {

/// Collective over `group`; all ranks pass the same slices with their own gradients. ConfigError on
/// all ranks naming the first parameter whose gradients differ: the ranks would train different
/// models.
void require_equal_gradients(comm::Communicator& group, std::span<const optim::OwnedSlice> slices);

}  // namespace trireme::inline v0::parallel
