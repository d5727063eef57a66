// The halving of the tree sum (docs/numerics.md) applied to ranks: the node of ranks [a, b) has the
// halves [a, c) and [c, b) with c = a + floor((b - a) / 2). If every rank brings one leaf, halves
// are siblings of the tree sum and added at once, so each message is one term. Pure functions.
#pragma once

#include <vector>

#include "trireme/kernel/tree_sum.h"

namespace trireme::inline v0::comm {

struct RankTreeNode {
  kernel::LeafRange ranks;  // at least two
  int height = 1;           // halvings from here to the deepest single rank
  int depth = 0;            // halvings from all ranks to here

  /// First rank of the right half.
  int split() const noexcept { return static_cast<int>(ranks.first + ranks.count / 2); }
  kernel::LeafRange left() const noexcept { return {ranks.first, ranks.count / 2}; }
  kernel::LeafRange right() const noexcept {
    return {ranks.first + ranks.count / 2, ranks.count - ranks.count / 2};
  }
};

int floor_log2(int size) noexcept;
/// ceil(log2(size)).
int height_of_rank_tree(int size) noexcept;
/// All nodes of at least two ranks; a node comes before its halves.
std::vector<RankTreeNode> rank_tree(int size);

}  // namespace trireme::inline v0::comm
