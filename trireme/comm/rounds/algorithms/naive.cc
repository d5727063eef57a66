// Naive: one round, in which every rank sends its buffer to all others and adds all leaves. The
// fewest rounds, but the most bytes: n-1 times all terms of a rank.
#include "trireme/comm/rounds/registry.h"

namespace trireme::inline v0::comm {
namespace {

void naive(Algorithm& a) {
  a.chunks(1);
  auto round = a.round();
  for (int s = 1; s < a.size; ++s) {  // starts with the neighbour, to spread the load
    round.send((a.rank + s) % a.size, a.chunk(0));
    round.add_from((a.rank + a.size - s) % a.size, a.chunk(0));
  }
}

AlgorithmCost naive_cost(const CostCase& c) {
  return {1, (c.size - 1) * c.bytes, (c.size - 1) * c.bytes};
}

}  // namespace

AlgorithmEntry naive_entry() {
  return {.kind = OpKind::AllReduce,
          .name = "naive",
          .about = "everyone sends everything to everyone; one round",
          .generator = naive,
          .cost = naive_cost,
          .formulas = {{"", "1", "n−1", "n−1"}}};
}

}  // namespace trireme::inline v0::comm
