// The recorded tree sum: each node is added once, by a rank that has both children, and the bits of
// the sum are those of one rank.
#include "trireme/show/collective/tree_sum.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "trireme/base/error.h"
#include "trireme/show/drawing/legible_test.h"

namespace trireme {
namespace {

using kernel::LeafRange;
using ::testing::HasSubstr;
using namespace show;

TEST(TreeSum, EachNodeIsAddedOnceBehindItsChildren) {
  for (const int ranks : {1, 2, 3, 5, 8}) {
    for (const std::uint32_t leaves : {2u, 7u, 8u, 13u, 32u}) {
      SCOPED_TRACE(std::to_string(ranks) + " ranks, " + std::to_string(leaves) + " leaves");
      const TreeSum sum = record_tree_sum(ranks, leaves);
      EXPECT_EQ(sum.additions.size(), leaves - 1);
      std::set<LeafRange> made;
      for (std::uint32_t leaf = 0; leaf < leaves; ++leaf) made.insert({leaf, 1});
      std::set<std::pair<int, int>> busy;  // rank, step
      for (const TreeAddition& one : sum.additions) {
        const std::uint32_t half = one.node.count / 2;
        EXPECT_TRUE(kernel::is_node(one.node, leaves));
        EXPECT_TRUE(made.contains({one.node.first, half}));
        EXPECT_TRUE(made.contains({one.node.first + half, one.node.count - half}));
        EXPECT_TRUE(made.insert(one.node).second);
        EXPECT_TRUE(busy.insert({one.rank, one.step}).second) << "two additions in one step";
      }
      EXPECT_TRUE(made.contains({0, leaves}));
      EXPECT_EQ(sum.sum, record_tree_sum(1, leaves).sum);
    }
  }
}

// The point of the page: an order that follows the ranks gives other bits on other rank counts.
TEST(TreeSum, RankOrderHasOtherBits) {
  std::set<float> tree, in_order;
  for (const int ranks : {1, 2, 3, 4}) {
    const TreeSum sum = record_tree_sum(ranks, 8);
    tree.insert(sum.sum);
    in_order.insert(sum.in_rank_order);
  }
  EXPECT_EQ(tree.size(), 1u);
  EXPECT_GT(in_order.size(), 1u);
}

TEST(TreeSum, SaysWhoSendsToWhom) {
  const TreeSum sum = record_tree_sum(2, 4);
  EXPECT_EQ(step_text(sum, 1), "rank 0: 0 + 1; rank 1: 2 + 3");
  EXPECT_EQ(step_text(sum, 2), "rank 0: 0-1 + 2-3 (from rank 1)");
  EXPECT_EQ(sum.steps(), 2);
}

TEST(TreeSum, PicturesAreLegible) {
  for (const std::uint32_t leaves : {2u, 8u, 32u}) {
    std::vector<TreeSum> sums;
    for (const int ranks : {1, 2, 3, 16}) sums.push_back(record_tree_sum(ranks, leaves));
    expect_legible(svg_of(sums));
    EXPECT_THAT(html_of(sums), HasSubstr("data-since=\"1\""));
    std::istringstream lines(json_of(sums));
    for (std::string line; std::getline(lines, line);)
      EXPECT_EQ(nlohmann::json::parse(line)["additions"].size(), leaves - 1);
  }
}

TEST(TreeSum, RefusesWhatItCannotDraw) {
  EXPECT_THROW(record_tree_sum(0, 8), ConfigError);
  EXPECT_THROW(record_tree_sum(17, 8), ConfigError);
  EXPECT_THROW(record_tree_sum(2, 1), ConfigError);
  EXPECT_THROW(record_tree_sum(2, 33), ConfigError);
}

}  // namespace
}  // namespace trireme
