// Ring (Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms", 2009): every chunk travels
// once around to be added, once around to be handed out. Each chunk goes in pieces, so that one is
// added while the next travels. 2(n-1) rounds per piece; 2(n-1)/n of the buffer per rank, times the
// share of rounds that meet non-siblings (docs/algorithms.md).
#include "trireme/comm/algorithms/algorithms.h"

namespace trireme {
inline namespace v0 {
namespace comm {

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

}  // namespace comm
}  // namespace v0
}  // namespace trireme
