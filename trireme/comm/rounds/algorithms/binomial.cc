// Binomial tree: in round s the 2^s ranks that have the buffer send it to the next 2^s.
// ceil(log2 n) rounds; the root sends the buffer once per round.
#include "trireme/comm/rounds/algorithms/rank_tree.h"
#include "trireme/comm/rounds/registry.h"

namespace trireme::inline v0::comm {
namespace {

void binomial_broadcast(Algorithm& a) {
  a.chunks(1);
  const int virtual_rank = (a.rank - a.root + a.size) % a.size;  // 0 for the root
  const auto real = [&](int v) { return (v + a.root) % a.size; };
  for (int have = 1; have < a.size; have *= 2) {
    if (virtual_rank < have) {
      if (virtual_rank + have < a.size) a.send(real(virtual_rank + have), a.chunk(0));
    } else if (virtual_rank < 2 * have) {
      a.round().copy_from(real(virtual_rank - have), a.chunk(0));
    }
  }
}

AlgorithmCost binomial_cost(const CostCase& c) {
  const int rounds = height_of_rank_tree(c.size);
  return {rounds, rounds * c.bytes, 0};
}

}  // namespace

AlgorithmEntry binomial_broadcast_entry() {
  return {.kind = OpKind::Broadcast,
          .name = "binomial",
          .about = "those who have it send it on; ceil(log2 n) rounds",
          .generator = binomial_broadcast,
          .cost = binomial_cost};
}

}  // namespace trireme::inline v0::comm
