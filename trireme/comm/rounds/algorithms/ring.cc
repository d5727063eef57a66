// Ring (Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms", 2009): every chunk goes
// around the ring once to be added, and once more to be distributed. Chunks are cut into pieces, so
// that one is added while the next is sent. 2(n-1) rounds per piece. Each rank sends 2(n-1)/n of
// the buffer, and more in rounds whose terms are no siblings of the tree sum (docs/algorithms.md).
#include <algorithm>

#include "trireme/comm/rounds/registry.h"
#include "trireme/kernel/tree_sum.h"

namespace trireme::inline v0::comm {
namespace {

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

// The number of terms that hold the sum over ranks first ... first+count-1 (modulo n).
int terms_of(int first, int count, int n) {
  const auto nodes = [&](int begin, int end) {
    const kernel::LeafRange range{static_cast<std::uint32_t>(begin),
                                  static_cast<std::uint32_t>(end - begin)};
    return static_cast<int>(kernel::maximal_nodes(range, static_cast<std::uint32_t>(n)).size());
  };
  if (count == n) return 1;
  if (first + count <= n) return nodes(first, first + count);
  return nodes(first, n) + nodes(0, first + count - n);
}

// In round s, the chunk from rank c holds the terms of ranks c ... c+s. Then n-1 rounds send sums.
AlgorithmCost ring_cost(const CostCase& c) {
  const int n = c.size;
  AlgorithmCost cost{2 * (n - 1) * c.pieces, 0, 0};
  for (int rank = 0; rank < n; ++rank) {
    int sent = n - 1, added = 0;
    for (int s = 0; s < n - 1; ++s) {
      const int first = (rank - s + n) % n, from = (rank - s - 1 + n) % n;
      sent += terms_of(first, s + 1, n);
      added += terms_of(from, s + 1, n) + 1 - terms_of(from, s + 2, n);
    }
    cost.bytes_sent_max_rank = std::max(cost.bytes_sent_max_rank, sent * c.bytes / n);
    cost.bytes_added = std::max(cost.bytes_added, added * c.bytes / n);
  }
  return cost;
}

}  // namespace

AlgorithmEntry ring_entry() {
  return {
      .kind = OpKind::AllReduce,
      .name = "ring",
      .about =
          "reduce-scatter and all-gather around a ring; 2(n-1) rounds (Patarasuk and Yuan 2009)",
      .generator = ring,
      .cost = ring_cost,
      .formulas = {{"", "2(n−1)p", "2(n−1)/n, times the factor below",
                    "(n−1)/n, and more for non-siblings"}}};
}

}  // namespace trireme::inline v0::comm
