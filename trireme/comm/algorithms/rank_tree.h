// The halving of NUMERICS.md applied to ranks: the node of ranks [a, b) has the halves [a, c) and
// [c, b) with c = a + floor((b - a) / 2). Algorithms that follow it add siblings at once where
// every rank brings one leaf, and so send one term a message. Pure functions.
#pragma once

#include <vector>

#include "trireme/kernel/tree_sum.h"

namespace trireme {
inline namespace v0 {
namespace comm {

struct RankTreeNode {
  kernel::LeafRange ranks;  // at least two
  int height = 1;           // halvings down to the deepest single rank below
  int depth = 0;            // halvings from the whole down to here

  /// First rank of the right half.
  int split() const noexcept { return static_cast<int>(ranks.first + ranks.count / 2); }
  kernel::LeafRange left() const noexcept { return {ranks.first, ranks.count / 2}; }
  kernel::LeafRange right() const noexcept {
    return {ranks.first + ranks.count / 2, ranks.count - ranks.count / 2};
  }
};

/// ceil(log2(size)).
int height_of_rank_tree(int size) noexcept;
/// All nodes of two ranks and more; a node comes before its halves.
std::vector<RankTreeNode> rank_tree(int size);

}  // namespace comm
}  // namespace v0
}  // namespace trireme
