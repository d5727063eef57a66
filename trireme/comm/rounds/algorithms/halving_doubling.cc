// Recursive halving and doubling (Rabenseifner 2004; Thakur, Rabenseifner and Gropp 2005): partners
// at distance 1, 2, 4, ... exchange halves of what they still add, then the sums the same way back.
//
// If n = 2^k: 2k rounds and 2(n-1)/n buffers per rank. Neighbours exchange first, so every message
// is one term.
//
// Otherwise 2^k is n rounded down to a power of two. The halving of the ranks has 2^k nodes of one
// or two ranks. In a node of two, the second rank first sends its buffer to the first, and receives
// the sum at the end. Two rounds and one buffer more than for 2^k ranks.
#include <algorithm>
#include <bit>

#include "trireme/comm/rounds/algorithms/halving_doubling.h"
#include "trireme/comm/rounds/algorithms/rank_tree.h"
#include "trireme/kernel/tree_sum.h"

namespace trireme::inline v0::comm {

int halving_chunks(int size) {
  return static_cast<int>(std::bit_floor(static_cast<unsigned>(std::max(size, 1))));
}

int add_halving_doubling(Timetable& table, int time, const std::vector<int>& ranks, int first) {
  const int size = static_cast<int>(ranks.size()), core = halving_chunks(size);
  const auto node = [&](int v) {
    return kernel::contiguous_share(static_cast<std::uint32_t>(size), core, v);
  };
  const auto rank_of = [&](int v) { return ranks[node(v).first]; };
  const int folds = core == size ? 0 : 1, levels = std::countr_zero(static_cast<unsigned>(core));
  const int back = time + folds + levels;  // the first time at which sums are sent
  for (int v = 0; v < core; ++v) {
    for (int chunk = 0; chunk < core && node(v).count == 2; ++chunk) {
      const int extra = ranks[node(v).first + 1];
      table.add(time, extra, rank_of(v), {first + chunk});
      table.copy(back + levels, rank_of(v), extra, {first + chunk});
    }
    for (int level = 0; level < levels; ++level) {
      const int distance = 1 << level, partner = v ^ distance;
      // After `level` rounds, v adds the chunks whose lowest `level` bits equal its own.
      const int step = 2 * distance;
      for (int chunk = partner % step; chunk < core; chunk += step)
        table.add(time + folds + level, rank_of(v), rank_of(partner), {first + chunk});
      for (int chunk = v % step; chunk < core; chunk += step)
        table.copy(back + levels - 1 - level, rank_of(v), rank_of(partner), {first + chunk});
    }
  }
  return back + levels + folds;
}

// With n = 2^k + e, the first rank of each of e pairs also adds one buffer and sends one.
AlgorithmCost halving_doubling_cost(const CostCase& c) {
  const int core = 1 << floor_log2(c.size), fold = c.size > core ? 1 : 0;
  const double part = double(core - 1) / core;
  return {2 * floor_log2(c.size) + 2 * fold, (2 * part + fold) * c.bytes, (part + fold) * c.bytes};
}

namespace {

void halving_doubling(Algorithm& a) {
  a.chunks(halving_chunks(a.size));
  std::vector<int> ranks;
  for (int rank = 0; rank < a.size; ++rank) ranks.push_back(rank);
  Timetable table;
  add_halving_doubling(table, 0, ranks, 0);
  table.record(a);
}

}  // namespace

AlgorithmEntry halving_doubling_entry() {
  return {
      .kind = OpKind::AllReduce,
      .name = "halving_doubling",
      .about = "exchanges at distance 1, 2, 4, ... and back; 2 log2 n rounds (Rabenseifner 2004)",
      .generator = halving_doubling,
      .cost = halving_doubling_cost,
      .formulas = {{", n = 2^k", "2l", "2(n−1)/n", "(n−1)/n"},
                   {", other n", "2l + 2", "2(m−1)/m + 1", "(m−1)/m + 1"}}};
}

}  // namespace trireme::inline v0::comm
