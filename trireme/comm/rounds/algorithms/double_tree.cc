// Double binary tree (Sanders, Speck and Traeff, "Two-tree algorithms for full bandwidth broadcast,
// reduction and scan", 2009). Each half of the buffer uses its own binary tree; most ranks are an
// inner node of one tree and a leaf of the other. Pieces let all levels work at the same time.
//
// The trees halve the ranks (rank_tree.h). The node that splits [a, b) at c is held by rank c in
// the first tree and by rank c-1 in the second. A rank's own leaf enters at the bottom, even if the
// rank holds a node further up. n = 4, first tree:
//
//     up   0 -> 1 -> 2 <- 3        1 holds 0+1, 3 holds 2+3 (rank 2 sends it its leaf), 2 holds all
//     down 2 -> 1 -> 0, 2 -> 3
//
// 2*ceil(log2 n) + pieces - 1 rounds; a rank sends at most 3 buffers, for any number of ranks.
#include <algorithm>

#include "trireme/comm/rounds/algorithms/rank_tree.h"
#include "trireme/comm/rounds/algorithms/timetable.h"
#include "trireme/comm/rounds/registry.h"

namespace trireme::inline v0::comm {
namespace {

class TreeOfHolders {
 public:
  TreeOfHolders(int which, int size) : which_(which), outsider_(which == 0 ? 0 : size - 1) {}
  int holder(const RankTreeNode& node) const { return node.split() - which_; }
  int holder(kernel::LeafRange half) const {
    return half.count == 1 ? static_cast<int>(half.first) : holder(RankTreeNode{half});
  }
  /// The only rank that holds no node; it receives the sum as a leaf.
  int outsider() const { return outsider_; }

 private:
  const int which_, outsider_;
};

void double_tree(Algorithm& a) {
  a.chunks(2 * a.pieces);
  const int top = height_of_rank_tree(a.size);
  Timetable table;
  for (int which : {0, 1}) {
    const TreeOfHolders tree(which, a.size);
    for (const RankTreeNode& node : rank_tree(a.size)) {
      const int parent = tree.holder(node);
      for (const kernel::LeafRange& half : {node.left(), node.right()}) {
        const int child = tree.holder(half);
        if (child == parent) continue;  // it has its own leaf already
        const bool down = half.count > 1 || child == tree.outsider();
        for (int piece = 0; piece < a.pieces; ++piece) {
          const Chunk chunk = a.chunk(which * a.pieces + piece);
          table.give(height_of_rank_tree(static_cast<int>(half.count)) + piece, child, parent,
                     chunk);
          if (down) table.copy(top + node.depth + piece, parent, child, chunk);
        }
      }
    }
  }
  table.record(a);
}

// A piece goes up from height h in round h + piece, and down from depth d in round top + d + piece.
// A leaf receives the sum only if it is the outsider; all other ranks receive it as holders.
AlgorithmCost double_tree_cost(const CostCase& c) {
  std::vector<int> sent(c.size), added(c.size);  // in half buffers
  for (int which : {0, 1}) {
    const TreeOfHolders tree(which, c.size);
    for (const RankTreeNode& node : rank_tree(c.size)) {
      const int holder = tree.holder(node);
      ++added[holder];
      for (const auto& half : {node.left(), node.right()}) {
        const int below = tree.holder(half);
        if (below == holder) continue;
        ++sent[below];
        if (half.count > 1 || below == tree.outsider()) ++sent[holder];
      }
    }
  }
  return {2 * height_of_rank_tree(c.size) + c.pieces - 1,
          *std::max_element(sent.begin(), sent.end()) * c.bytes / 2,
          *std::max_element(added.begin(), added.end()) * c.bytes / 2};
}

}  // namespace

AlgorithmEntry double_tree_entry() {
  return {
      .kind = OpKind::AllReduce,
      .name = "double_tree",
      .about = "two binary trees, half of the buffer each, pipelined (Sanders, Speck, Traeff 2009)",
      .generator = double_tree,
      .cost = double_tree_cost,
      .formulas = {{"", "2L + p − 1", "at most 3 (n = 2: 1, 4: 2.5)", "at most 1"}}};
}

}  // namespace trireme::inline v0::comm
