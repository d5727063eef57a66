// Recursive halving and doubling over some of the ranks. halving_doubling.cc uses it over all
// ranks, hierarchical.cc over one rank per host. Pure functions.
#pragma once

#include <vector>

#include "trireme/comm/rounds/algorithms/timetable.h"
#include "trireme/comm/rounds/registry.h"

namespace trireme::inline v0::comm {

/// The number of chunks that `size` ranks need: the largest power of two <= size.
int halving_chunks(int size);
/// Adds an all-reduce of chunks first ... first + halving_chunks(ranks.size()) - 1 among `ranks` to
/// `table`, beginning at `time`. Returns the time after its last round.
int add_halving_doubling(Timetable& table, int time, const std::vector<int>& ranks, int first);
AlgorithmCost halving_doubling_cost(const CostCase& c);

}  // namespace trireme::inline v0::comm
