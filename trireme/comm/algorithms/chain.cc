// Chain: the root sends the buffer piece by piece to its neighbour, who passes each piece on while
// the next one comes. n-2+p rounds of 1/p of the buffer each: nobody sends the buffer more than
// once, which the binomial tree's root does ceil(log2 n) times.
#include "trireme/comm/algorithms/algorithms.h"

namespace trireme {
inline namespace v0 {
namespace comm {

void chain_broadcast(Algorithm& a) {
  a.chunks(a.pieces);
  const int place = (a.rank - a.root + a.size) % a.size;  // the root stands first
  for (int t = 0; t < a.size - 2 + a.pieces; ++t) {
    auto round = a.round();
    const int goes = t - place, comes = goes + 1;  // pieces
    if (place < a.size - 1 && 0 <= goes && goes < a.pieces) round.send(a.next(), a.chunk(goes));
    if (place > 0 && 0 <= comes && comes < a.pieces) round.copy_from(a.prev(), a.chunk(comes));
  }
}

}  // namespace comm
}  // namespace v0
}  // namespace trireme
