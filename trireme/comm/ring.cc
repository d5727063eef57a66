// Ring (Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms", 2009): every chunk travels
// once around to be added, once around to be handed out. 2(n-1) rounds; 2(n-1)/n of the buffer per
// rank, times the share of rounds that meet non-siblings (docs/algorithms.md).
#include "trireme/comm/algorithms.h"

namespace trireme {
inline namespace v0 {
namespace comm {

void ring(Algorithm& a) {
  for (int s = 0; s < a.size - 1; ++s) {
    a.send(a.next(), a.chunk(a.rank - s)).add_from(a.prev(), a.chunk(a.rank - s - 1));
  }
  for (int s = 0; s < a.size - 1; ++s) {
    a.send(a.next(), a.chunk(a.rank + 1 - s)).copy_from(a.prev(), a.chunk(a.rank - s));
  }
}

}  // namespace comm
}  // namespace v0
}  // namespace trireme
