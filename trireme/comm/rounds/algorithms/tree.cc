// Tree: up and down the tree by which the tree sum halves its leaves (docs/numerics.md), applied to
// the ranks; so each message is one term. Up, for n = 5:
//
//     0     1     2     3     4
//     0 <-- 1           3 <-- 4       round 0      T(0,5) = T(0,2) + T(2,5)
//                 2 <-- 3             round 1               (0+1) + (2+(3+4))
//     0 <-------- 2                   round 2
//
// 2*ceil(log2 n) rounds of the whole buffer. If n is a power of two, this is the binomial tree. Few
// rounds, but the root sends the buffer up to ceil(log2 n) times.
#include "trireme/comm/rounds/algorithms/rank_tree.h"
#include "trireme/comm/rounds/algorithms/timetable.h"
#include "trireme/comm/rounds/registry.h"

namespace trireme::inline v0::comm {
namespace {

// The rank that collects the sum of `ranks`: the root if it is one of them, else the first.
int leader(kernel::LeafRange ranks, int root) {
  const auto wanted = static_cast<std::uint32_t>(root);
  const bool inside = ranks.first <= wanted && wanted < ranks.end();
  return inside ? root : static_cast<int>(ranks.first);
}

// Calls visit(height, from, to) for every message on the way up.
void each_message_up(int size, int root, const auto& visit) {
  for (const RankTreeNode& node : rank_tree(size)) {
    const int to = leader(node.ranks, root);
    for (const auto& half : {node.left(), node.right()}) {
      if (const int from = leader(half, root); from != to) visit(node.height, from, to);
    }
  }
}

void tree_reduce(Algorithm& a) {
  a.chunks(1);
  Timetable table;
  each_message_up(a.size, a.root, [&](int height, int from, int to) {
    table.add(height - 1, from, to, a.chunk(0));
  });
  table.record(a);
}

void tree(Algorithm& a) {
  a.chunks(1);
  const int top = height_of_rank_tree(a.size);
  Timetable table;
  each_message_up(a.size, a.root, [&](int height, int from, int to) {
    table.add(height - 1, from, to, a.chunk(0));
    table.copy(2 * top - height, to, from, a.chunk(0));
  });
  table.record(a);
}

// The first rank of the right half sends most: once up, then down once for each level of its half.
AlgorithmCost tree_cost(const CostCase& c) {
  const int sent = 1 + floor_log2(c.size - c.size / 2);
  return {2 * height_of_rank_tree(c.size), sent * c.bytes, floor_log2(c.size) * c.bytes};
}
AlgorithmCost tree_reduce_cost(const CostCase& c) {
  return {height_of_rank_tree(c.size), c.bytes, floor_log2(c.size) * c.bytes};
}

}  // namespace

AlgorithmEntry tree_entry() {
  return {.kind = OpKind::AllReduce,
          .name = "tree",
          .about = "up the tree of the sum and down again; 2 ceil(log2 n) rounds",
          .generator = tree,
          .cost = tree_cost,
          .formulas = {{"", "2L", "1 + ⌊log₂⌈n/2⌉⌋", "l"}}};
}
AlgorithmEntry tree_reduce_entry() {
  return {.kind = OpKind::Reduce,
          .name = "tree",
          .about = "up the tree of the sum; ceil(log2 n) rounds",
          .generator = tree_reduce,
          .cost = tree_reduce_cost};
}

}  // namespace trireme::inline v0::comm
