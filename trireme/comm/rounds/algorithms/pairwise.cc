// Pairwise exchange: in round s, rank r sends to r+s and receives from r-s. n-1 rounds. Every piece
// is sent once to each rank that needs it, which is the minimum of any algorithm.
#include "trireme/comm/rounds/algorithms/algorithms.h"

namespace trireme::inline v0::comm {

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

}  // namespace trireme::inline v0::comm
