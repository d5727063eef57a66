// Chain: the root sends the buffer piece by piece to its neighbour, which forwards each piece while
// it receives the next. n-2+p rounds of 1/p of the buffer each. No rank sends the buffer more than
// once; the root of a binomial tree sends it ceil(log2 n) times.
#include "trireme/comm/rounds/registry.h"

namespace trireme::inline v0::comm {
namespace {

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

AlgorithmCost chain_cost(const CostCase& c) { return {c.size - 2 + c.pieces, c.bytes, 0}; }

}  // namespace

AlgorithmEntry chain_broadcast_entry() {
  return {.kind = OpKind::Broadcast,
          .name = "chain",
          .about = "piece by piece from rank to rank; n-2+pieces rounds",
          .generator = chain_broadcast,
          .cost = chain_cost};
}

}  // namespace trireme::inline v0::comm
