// Central: every rank sends the buffer to one root, which adds all and sends the sum back, as a
// parameter server does. Two rounds, but the root receives and sends n-1 buffers. Gather and
// scatter are the two halves of it, and are optimal in bytes.
#include "trireme/comm/rounds/registry.h"

namespace trireme::inline v0::comm {
namespace {

void central(Algorithm& a) {
  a.chunks(1);
  auto gather = a.round();
  auto hand_out = a.round();
  if (a.rank != a.root) {
    gather.send(a.root, a.chunk(0));
    hand_out.copy_from(a.root, a.chunk(0));
    return;
  }
  for (int s = 1; s < a.size; ++s) {
    gather.add_from((a.root + s) % a.size, a.chunk(0));
    hand_out.send((a.root + s) % a.size, a.chunk(0));
  }
}

void central_gather(Algorithm& a) {
  auto round = a.round();
  if (a.rank != a.root) round.send(a.root, a.chunk(a.rank));
  for (int s = 1; s < a.size && a.rank == a.root; ++s) {
    const int from = (a.root + s) % a.size;
    round.copy_from(from, a.chunk(from));
  }
}

void central_scatter(Algorithm& a) {
  auto round = a.round();
  if (a.rank != a.root) round.copy_from(a.root, a.chunk(a.rank));
  for (int s = 1; s < a.size && a.rank == a.root; ++s) {
    const int to = (a.root + s) % a.size;
    round.send(to, a.chunk(to));
  }
}

AlgorithmCost central_cost(const CostCase& c) {
  return {2, (c.size - 1) * c.bytes, (c.size - 1) * c.bytes};
}
AlgorithmCost central_gather_cost(const CostCase& c) { return {1, c.bytes / c.size, 0}; }
AlgorithmCost central_scatter_cost(const CostCase& c) { return {1, c.others() * c.bytes, 0}; }

}  // namespace

AlgorithmEntry central_entry() {
  return {.kind = OpKind::AllReduce,
          .name = "central",
          .about = "to one root, which adds, and back; 2 rounds",
          .generator = central,
          .cost = central_cost,
          .formulas = {{"", "2", "n−1", "n−1"}}};
}
AlgorithmEntry central_gather_entry() {
  return {.kind = OpKind::Gather,
          .name = "central",
          .about = "everyone sends its piece to the root; one round",
          .generator = central_gather,
          .cost = central_gather_cost};
}
AlgorithmEntry central_scatter_entry() {
  return {.kind = OpKind::Scatter,
          .name = "central",
          .about = "the root sends everyone its piece; one round",
          .generator = central_scatter,
          .cost = central_scatter_cost};
}

}  // namespace trireme::inline v0::comm
