#include "trireme/kernel/tree_sum.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <map>
#include <random>
#include <vector>

namespace trireme::kernel {
namespace {

float recursive(const std::vector<float>& leaves, std::uint32_t a, std::uint32_t b) {
  if (b - a == 1) return leaves[a];
  const std::uint32_t c = a + (b - a) / 2;
  return recursive(leaves, a, c) + recursive(leaves, c, b);
}

unsigned log2_up(std::uint32_t n) { return n < 2 ? 0 : std::bit_width(n - 1); }

std::vector<float> random_leaves(std::uint32_t total, std::mt19937& random) {
  std::uniform_real_distribution<float> value(-1, 1);
  std::vector<float> leaves(total);
  for (float& leaf : leaves) leaf = value(random) * std::exp2(float(random() % 30) - 15.0f);
  return leaves;
}

TEST(TreeSum, NodesOfFive) {  // T(0,5) = ((0 1) (2 (3 4)))
  EXPECT_TRUE(is_node({0, 5}, 5));
  EXPECT_TRUE(is_node({0, 2}, 5));
  EXPECT_TRUE(is_node({2, 3}, 5));
  EXPECT_TRUE(is_node({3, 2}, 5));
  EXPECT_FALSE(is_node({1, 2}, 5));
  EXPECT_FALSE(is_node({2, 2}, 5));
  EXPECT_FALSE(is_node({4, 2}, 5));
  EXPECT_FALSE(is_node({0, 0}, 5));
  EXPECT_EQ(sibling({0, 2}, 5), (LeafRange{2, 3}));
  EXPECT_EQ(sibling({2, 1}, 5), (LeafRange{3, 2}));
  EXPECT_EQ(sibling({0, 5}, 5).count, 0u);
}

TEST(TreeSum, MaximalNodesOfRandomRanges) {
  std::mt19937 random(7);
  for (int round = 0; round < 2000; ++round) {
    const std::uint32_t total = 1 + random() % 100;
    const std::uint32_t first = random() % total, count = random() % (total - first + 1);
    const auto nodes = maximal_nodes({first, count}, total);
    std::uint32_t at = first;
    for (const LeafRange& node : nodes) {  // they tile the range
      EXPECT_EQ(node.first, at);
      EXPECT_TRUE(is_node(node, total));
      at = node.end();
    }
    EXPECT_EQ(at, first + count);
    EXPECT_LE(nodes.size(), std::max(1u, 2 * log2_up(total)));
    auto reduced = nodes;
    EXPECT_TRUE(merges(reduced, total).empty());  // maximal: no two are siblings
  }
}

TEST(TreeSum, SharesTileAndPowersOfTwoGiveOneNode) {
  for (std::uint32_t total = 0; total <= 40; ++total) {
    for (int size = 1; size <= 9; ++size) {
      std::uint32_t at = 0;
      for (int rank = 0; rank < size; ++rank) {
        const LeafRange share = contiguous_share(total, size, rank);
        EXPECT_EQ(share.first, at);
        at = share.end();
        if (std::has_single_bit(unsigned(size)) && share.count > 0) {
          EXPECT_TRUE(is_node(share, total)) << total << " over " << size;
        }
      }
      EXPECT_EQ(at, total);
    }
  }
}

TEST(TreeSum, ThreeRanksHoldSevenTermsOfTwelve) {  // the figure of docs/numerics.md
  std::size_t terms = 0;
  for (int rank = 0; rank < 3; ++rank) {
    terms += maximal_nodes(contiguous_share(12, 3, rank), 12).size();
  }
  EXPECT_EQ(terms, 7u);
}

// Any split into nodes, merged in any order, gives the root with the bits of the definition.
TEST(TreeSum, MergesGiveTheRecursiveSum) {
  std::mt19937 random(11);
  for (int round = 0; round < 500; ++round) {
    const std::uint32_t total = 1 + random() % 64;
    const auto leaves = random_leaves(total, random);
    const int size = 1 + random() % 9;
    std::map<LeafRange, float> values;
    std::vector<LeafRange> held;
    for (int rank = 0; rank < size; ++rank) {
      for (const LeafRange& node : maximal_nodes(contiguous_share(total, size, rank), total)) {
        values[node] = recursive(leaves, node.first, node.end());
        held.insert(held.begin() + random() % (held.size() + 1), node);
        for (const auto& [left, right] : merges(held, total)) {
          const LeafRange parent{left.first, left.count + right.count};
          EXPECT_EQ(sibling(left, total), right);
          values[parent] = values.at(left) + values.at(right);
        }
      }
    }
    ASSERT_EQ(held.size(), 1u);
    EXPECT_EQ(held.front(), (LeafRange{0, total}));
    EXPECT_EQ(std::bit_cast<std::uint32_t>(values.at(held.front())),
              std::bit_cast<std::uint32_t>(recursive(leaves, 0, total)));
  }
}

TEST(TreeSum, DiffersFromRankOrder) {  // otherwise the tests above would prove nothing
  std::mt19937 random(3);
  int different = 0;
  for (int round = 0; round < 100; ++round) {
    const auto leaves = random_leaves(12, random);
    float in_order = 0;
    for (float leaf : leaves) in_order += leaf;
    different += in_order != recursive(leaves, 0, 12);
  }
  EXPECT_GT(different, 10);
}

}  // namespace
}  // namespace trireme::kernel
