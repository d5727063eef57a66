// Pairwise exchange: in round s rank r sends to r+s and receives from r-s. n-1 rounds; every rank
// sends and receives each piece once, which no algorithm can undercut.
#include "trireme/comm/algorithms.h"

namespace trireme {
inline namespace v0 {
namespace comm {

void pairwise_all_gather(Algorithm& a) {
  for (int s = 1; s < a.size; ++s) {
    const int to = (a.rank + s) % a.size, from = (a.rank + a.size - s) % a.size;
    a.send(to, a.chunk(a.rank)).copy_from(from, a.chunk(from));
  }
}

void pairwise_reduce_scatter(Algorithm& a) {
  for (int s = 1; s < a.size; ++s) {
    const int to = (a.rank + s) % a.size, from = (a.rank + a.size - s) % a.size;
    a.send(to, a.chunk(to)).add_from(from, a.chunk(a.rank));
  }
}

}  // namespace comm
}  // namespace v0
}  // namespace trireme
