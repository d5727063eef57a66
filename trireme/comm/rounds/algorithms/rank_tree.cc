#include "trireme/comm/rounds/algorithms/rank_tree.h"

#include <bit>

namespace trireme::inline v0::comm {

int floor_log2(int size) noexcept { return std::bit_width(static_cast<unsigned>(size)) - 1; }

int height_of_rank_tree(int size) noexcept {
  return size < 2 ? 0 : std::bit_width(static_cast<unsigned>(size - 1));
}

std::vector<RankTreeNode> rank_tree(int size) {
  std::vector<RankTreeNode> nodes;
  const auto add = [&](kernel::LeafRange ranks, int depth) {
    if (ranks.count < 2) return;
    nodes.push_back({ranks, height_of_rank_tree(static_cast<int>(ranks.count)), depth});
  };
  add({0, static_cast<std::uint32_t>(size)}, 0);
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    const RankTreeNode node = nodes[i];
    add(node.left(), node.depth + 1);
    add(node.right(), node.depth + 1);
  }
  return nodes;
}

}  // namespace trireme::inline v0::comm
