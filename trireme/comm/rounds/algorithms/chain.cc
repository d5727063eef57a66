// Chain: the root sends the buffer piece by piece to its neighbour, which forwards each piece while
// it receives the next. n-2+p rounds of 1/p of the buffer each. No rank sends the buffer more than
// once; the root of a binomial tree sends it ceil(log2 n) times.
#include "trireme/comm/rounds/algorithms/algorithms.h"

namespace trireme::inline v0::comm {

void chain_broadcast(Algorithm& a) {
  a.chunks(a.pieces);
  const int place = (a.rank - a.root + a.size) % a.size;  // 0 for the root
  for (int t = 0; t < a.size - 2 + a.pieces; ++t) {
    auto round = a.round();
    const int goes = t - place, comes = goes + 1;  // indices of pieces
    if (place < a.size - 1 && 0 <= goes && goes < a.pieces) round.send(a.next(), a.chunk(goes));
    if (place > 0 && 0 <= comes && comes < a.pieces) round.copy_from(a.prev(), a.chunk(comes));
  }
}

}  // namespace trireme::inline v0::comm
