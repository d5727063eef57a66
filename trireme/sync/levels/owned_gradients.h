// Functions over all owned gradients: their squares, and whether they are finite.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "trireme/comm/communicator.h"
#include "trireme/optim/owned_slice.h"
#include "trireme/sync/levels/ownership.h"

namespace trireme::inline v0::parallel {

/// The fp64 sums of squares of every chunk of every slice, in their order.
std::vector<double> squares_of(std::span<const optim::OwnedSlice> slices);
/// The same for all owners of a copy of the parameters, in the order of parameters and elements.
/// Collective over `owners`; `pieces_of[r]` is what rank r owns.
std::vector<double> gather_squares(comm::Communicator& owners,
                                   std::span<const optim::OwnedSlice> owned,
                                   std::span<const std::vector<Piece>> pieces_of);
/// A rank's share of a list of squares: the next `chunks` of what it gives. Not counted: left out
/// of the list, because another rank gives the same elements.
struct SquaresOf {
  int rank = 0;
  std::size_t chunks = 0;
  bool counted = true;
};
/// The list that `order` describes, from each rank's own squares. Collective.
std::vector<double> gather_squares(comm::Communicator& group, std::span<const double> own,
                                   std::span<const SquaresOf> order);
/// Chunks of this many elements.
std::size_t num_chunks(std::int64_t elements);
/// The parameter of the first slice that holds an infinity or a NaN; -1: none. Reads each once.
std::int64_t first_not_finite(std::span<const optim::OwnedSlice> slices);
/// The least number that is not negative among those of all ranks; -1: none. Collective.
std::int64_t first_of_all(comm::Communicator& group, std::int64_t own,
                          std::string_view label = "overflow");

}  // namespace trireme::inline v0::parallel
