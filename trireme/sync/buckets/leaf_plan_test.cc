#include "trireme/sync/buckets/leaf_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

namespace trireme::leaf_plan_test {
namespace {

using kernel::LeafRange;
using parallel::LeafPlan;
using parallel::make_leaf_plan;

// Runs the plan on ranges instead of numbers: every addition must be one of two siblings.
void expect_only_siblings(const LeafPlan& plan) {
  std::map<int, LeafRange> slots;
  std::uint32_t leaf = plan.share.first;
  for (const parallel::LeafStep& step : plan.steps) {
    LeafRange node{leaf++, 1};
    for (int k = step.merges; k-- > 0;) {
      const LeafRange left = slots.at(step.slot + k);
      ASSERT_EQ(left.end(), node.first);
      ASSERT_EQ(kernel::sibling(left, plan.leaves.total), node);
      node = {left.first, left.count + node.count};
      slots.erase(step.slot + k);
    }
    ASSERT_FALSE(slots.contains(step.slot));
    slots[step.slot] = node;
    ASSERT_LE(static_cast<int>(slots.size()), plan.slots);
  }
  ASSERT_EQ(slots.size(), plan.terms.size());
  for (std::size_t i = 0; i < plan.terms.size(); ++i)
    EXPECT_EQ(slots.at(static_cast<int>(i)), plan.terms[i]);
}

TEST(LeafPlan, RunningSumIsOneTermARank) {
  for (std::uint32_t total = 1; total <= 20; ++total) {
    for (const std::vector<std::uint32_t>& weights :
         std::vector<std::vector<std::uint32_t>>{{1}, {1, 1}, {1, 9, 1}, {}, {4, 1, 1, 40, 2}}) {
      const int size = weights.empty() ? 3 : static_cast<int>(weights.size());
      const kernel::LeafShares leaves(total, weights);
      std::uint32_t next = 0, terms = 0, with_leaves = 0;
      for (int rank = 0; rank < size; ++rank) {
        const LeafPlan plan = parallel::make_running_plan(leaves, size, rank);
        with_leaves += plan.share.count > 0 ? 1 : 0;
        EXPECT_EQ(plan.share.first, next);
        next = plan.share.end();
        ASSERT_EQ(plan.steps.size(), plan.share.count);
        for (std::size_t i = 0; i < plan.steps.size(); ++i) {
          EXPECT_EQ(plan.steps[i].slot, 0);
          EXPECT_EQ(plan.steps[i].merges, i == 0 ? 0 : 1);
        }
        // As all_reduce over terms requires them.
        const LeafRange own = plan.leaves.of(size, rank);
        EXPECT_EQ(plan.terms.size(), own.count);
        for (const LeafRange& term : plan.terms) EXPECT_EQ(term, own);
        terms += static_cast<std::uint32_t>(plan.terms.size());
      }
      EXPECT_EQ(next, total);
      EXPECT_EQ(terms, with_leaves);
    }
  }
}

TEST(LeafPlan, AddsSiblingsOnlyAndEndsWithTheMaximalNodes) {
  for (std::uint32_t total = 1; total <= 40; ++total) {
    for (int size : {1, 2, 3, 4, 5, 8}) {
      for (int rank = 0; rank < size; ++rank) {
        const LeafPlan plan = make_leaf_plan(total, size, rank);
        expect_only_siblings(plan);
        EXPECT_EQ(plan.terms, kernel::maximal_nodes(plan.share, total));
      }
    }
  }
}

TEST(LeafPlan, AStackOfLogTwoSlotsIsEnoughForOneNode) {
  EXPECT_EQ(make_leaf_plan(1, 1, 0).slots, 1);
  EXPECT_EQ(make_leaf_plan(2, 1, 0).slots, 1);
  EXPECT_EQ(make_leaf_plan(4, 1, 0).slots, 2);
  EXPECT_EQ(make_leaf_plan(8, 1, 0).slots, 3);
  EXPECT_EQ(make_leaf_plan(16, 2, 1).slots, 3);
  EXPECT_EQ(parallel::slots_needed(2, 3), 1);
}

TEST(LeafPlan, AShortBatchLeavesARankWithoutAShare) {
  EXPECT_TRUE(make_leaf_plan(2, 3, 0).terms.empty());
  EXPECT_EQ(make_leaf_plan(2, 3, 1).terms.size(), 1u);
}

}  // namespace
}  // namespace trireme::leaf_plan_test
