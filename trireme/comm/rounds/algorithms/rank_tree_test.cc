#include "trireme/comm/rounds/algorithms/rank_tree.h"

#include <gtest/gtest.h>

namespace trireme::comm {
namespace {

TEST(RankTree, HalvesAsTheSumDoes) {
  const auto nodes = rank_tree(5);
  ASSERT_EQ(nodes.size(), 4u);
  EXPECT_EQ(nodes[0].ranks, (kernel::LeafRange{0, 5}));
  EXPECT_EQ(nodes[0].split(), 2);
  EXPECT_EQ(nodes[0].height, 3);
  EXPECT_EQ(nodes[1].ranks, (kernel::LeafRange{0, 2}));
  EXPECT_EQ(nodes[2].ranks, (kernel::LeafRange{2, 3}));
  EXPECT_EQ(nodes[3].ranks, (kernel::LeafRange{3, 2}));
  EXPECT_EQ(nodes[3].depth, 2);
  for (int size = 1; size <= 40; ++size) {
    const auto all = rank_tree(size);
    ASSERT_EQ(all.size(), static_cast<std::size_t>(size - 1));
    for (const RankTreeNode& node : all) {
      EXPECT_TRUE(kernel::is_node(node.ranks, static_cast<std::uint32_t>(size)));
      EXPECT_EQ(kernel::sibling(node.left(), static_cast<std::uint32_t>(size)), node.right());
      EXPECT_LE(node.depth + node.height, height_of_rank_tree(size));
    }
  }
}

}  // namespace
}  // namespace trireme::comm
