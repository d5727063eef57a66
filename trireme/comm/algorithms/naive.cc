// Naive: one round in which everyone sends everything to everyone, and everyone adds all leaves.
// The fewest rounds, the most bytes: n-1 times all terms of a rank.
#include "trireme/comm/algorithms/algorithms.h"

namespace trireme {
inline namespace v0 {
namespace comm {

void naive(Algorithm& a) {
  a.chunks(1);
  auto round = a.round();
  for (int s = 1; s < a.size; ++s) {  // start with the neighbour, so that nobody is hit by all
    round.send((a.rank + s) % a.size, a.chunk(0));
    round.add_from((a.rank + a.size - s) % a.size, a.chunk(0));
  }
}

}  // namespace comm
}  // namespace v0
}  // namespace trireme
