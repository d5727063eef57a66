// Functions over all owned gradients: their squares, and whether they are finite.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "trireme/comm/communicator.h"
#include "trireme/optim/owned_slice.h"
#include "trireme/sync/ownership.h"

namespace trireme::inline v0::parallel {

/// The fp64 sums of squares of every chunk of every slice, in their order.
std::vector<double> squares_of(std::span<const optim::OwnedSlice> slices);
/// The same for all owners of a copy of the parameters, in the order of parameters and elements.
/// Collective over `owners`; `pieces_of[r]` is what rank r owns.
std::vector<double> gather_squares(comm::Communicator& owners,
                                   std::span<const optim::OwnedSlice> owned,
                                   std::span<const std::vector<Piece>> pieces_of);
/// The parameter of the first slice that holds an infinity or a NaN; -1: none. Reads each once.
std::int64_t first_not_finite(std::span<const optim::OwnedSlice> slices);

}  // namespace trireme::inline v0::parallel
