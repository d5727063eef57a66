// Recursive halving and doubling over some of the ranks: halving_doubling.cc over all of them,
// hierarchical.cc over one rank per host. Pure functions.
#pragma once

#include <vector>

#include "trireme/comm/algorithms/timetable.h"

namespace trireme {
inline namespace v0 {
namespace comm {

/// Into how many chunks `size` ranks cut what they add: the largest power of two <= size.
int halving_chunks(int size);
/// All-reduces chunks first ... first + halving_chunks(ranks.size()) - 1 among `ranks`, from round
/// `time` on. Returns the round after its last.
int add_halving_doubling(Timetable& table, int time, const std::vector<int>& ranks, int first);

}  // namespace comm
}  // namespace v0
}  // namespace trireme
