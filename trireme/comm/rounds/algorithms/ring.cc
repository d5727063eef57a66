// Ring (Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms", 2009): every chunk goes
// around the ring once to be added, and once more to be distributed. Chunks are cut into pieces, so
// that one is added while the next is sent. 2(n-1) rounds per piece. Each rank sends 2(n-1)/n of
// the buffer, and more in rounds whose terms are no siblings of the tree sum (docs/algorithms.md).
#include "trireme/comm/rounds/algorithms/algorithms.h"

namespace trireme::inline v0::comm {

void ring(Algorithm& a) {
  const int p = a.pieces;
  a.chunks(a.size * p);
  for (int s = 0; s < a.size - 1; ++s) {
    for (int i = 0; i < p; ++i) {
      a.send(a.next(), a.chunk((a.rank - s) * p + i))
          .add_from(a.prev(), a.chunk((a.rank - s - 1) * p + i));
    }
  }
  for (int s = 0; s < a.size - 1; ++s) {
    for (int i = 0; i < p; ++i) {
      a.send(a.next(), a.chunk((a.rank + 1 - s) * p + i))
          .copy_from(a.prev(), a.chunk((a.rank - s) * p + i));
    }
  }
}

}  // namespace trireme::inline v0::comm
