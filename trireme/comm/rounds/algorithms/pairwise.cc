// Pairwise exchange: in round s, rank r sends to r+s and receives from r-s. n-1 rounds. Every piece
// is sent once to each rank that needs it, which is the minimum of any algorithm.
#include "trireme/comm/rounds/registry.h"

namespace trireme::inline v0::comm {
namespace {

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

// Rank r adds chunk r, then sends it to the root.
void pairwise_reduce(Algorithm& a) {
  pairwise_reduce_scatter(a);
  auto last = a.round();
  if (a.rank != a.root) last.send(a.root, a.chunk(a.rank));
  for (int s = 1; s < a.size && a.rank == a.root; ++s) {
    const int from = (a.rank + s) % a.size;
    last.copy_from(from, a.chunk(from));
  }
}

void pairwise_all_to_all(Algorithm& a) {
  a.chunks(a.size * a.size);
  for (int s = 1; s < a.size; ++s) {
    const int to = (a.rank + s) % a.size, from = (a.rank + a.size - s) % a.size;
    a.send(to, a.chunk(a.rank * a.size + to)).copy_from(from, a.chunk(from * a.size + a.rank));
  }
}

void naive_all_to_all(Algorithm& a) {
  a.chunks(a.size * a.size);
  auto round = a.round();
  for (int s = 1; s < a.size; ++s) {  // starts with the neighbour, to spread the load
    const int to = (a.rank + s) % a.size, from = (a.rank + a.size - s) % a.size;
    round.send(to, a.chunk(a.rank * a.size + to));
    round.copy_from(from, a.chunk(from * a.size + a.rank));
  }
}

AlgorithmCost each_piece_once(const CostCase& c) { return {c.size - 1, c.others() * c.bytes, 0}; }
AlgorithmCost reduce_scatter_cost(const CostCase& c) {
  return {c.size - 1, c.others() * c.bytes, c.others() * c.bytes};
}
AlgorithmCost pairwise_reduce_cost(const CostCase& c) {
  return {c.size, c.bytes, c.others() * c.bytes};
}
AlgorithmCost all_at_once_cost(const CostCase& c) { return {1, c.others() * c.bytes, 0}; }

}  // namespace

AlgorithmEntry pairwise_all_gather_entry() {
  return {.kind = OpKind::AllGather,
          .name = "pairwise",
          .about = "rank r sends its piece to r+1, r+2, ...; n-1 rounds",
          .generator = pairwise_all_gather,
          .cost = each_piece_once};
}
AlgorithmEntry pairwise_reduce_scatter_entry() {
  return {.kind = OpKind::ReduceScatter,
          .name = "pairwise",
          .about = "everyone's piece r to rank r; n-1 rounds",
          .generator = pairwise_reduce_scatter,
          .cost = reduce_scatter_cost};
}
AlgorithmEntry pairwise_reduce_entry() {
  return {.kind = OpKind::Reduce,
          .name = "pairwise",
          .about = "pairwise reduce-scatter, then the sums to the root; n rounds",
          .generator = pairwise_reduce,
          .cost = pairwise_reduce_cost};
}
AlgorithmEntry pairwise_all_to_all_entry() {
  return {.kind = OpKind::AllToAll,
          .name = "pairwise",
          .about = "to r+1 and from r-1, to r+2 and from r-2, ...; n-1 rounds",
          .generator = pairwise_all_to_all,
          .cost = each_piece_once};
}
AlgorithmEntry naive_all_to_all_entry() {
  return {.kind = OpKind::AllToAll,
          .name = "naive",
          .about = "everything at once; one round",
          .generator = naive_all_to_all,
          .cost = all_at_once_cost};
}

}  // namespace trireme::inline v0::comm
