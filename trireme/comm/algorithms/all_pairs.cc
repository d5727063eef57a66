// All pairs: round 1, everyone sends slice r to rank r, which adds; round 2, everyone sends its sum
// to everyone. As few bytes as any algorithm can send, in two rounds of n-1 messages, and never a
// partial sum on the wire: leaves go out and whole sums come back. So 16-bit data stays 16 bits on
// the way, and no rank count sends more than 2(n-1)/n of the buffer. MSCCL's "allpairs" (Cowan et
// al. 2023).
#include "trireme/comm/algorithms/algorithms.h"

namespace trireme {
inline namespace v0 {
namespace comm {

void all_pairs(Algorithm& a) {
  auto scatter = a.round();
  for (int s = 1; s < a.size; ++s) {  // start with the neighbour, so that nobody is hit by all
    const int to = (a.rank + s) % a.size, from = (a.rank + a.size - s) % a.size;
    scatter.send(to, a.chunk(to));
    scatter.add_from(from, a.chunk(a.rank));
  }
  auto gather = a.round();
  for (int s = 1; s < a.size; ++s) {
    const int to = (a.rank + s) % a.size, from = (a.rank + a.size - s) % a.size;
    gather.send(to, a.chunk(a.rank));
    gather.copy_from(from, a.chunk(from));
  }
}

}  // namespace comm
}  // namespace v0
}  // namespace trireme
