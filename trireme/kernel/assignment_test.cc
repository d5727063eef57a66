#include "trireme/kernel/assignment.h"

#include <gtest/gtest.h>

#include <set>

namespace trireme::kernel {
namespace {

using Leaves = std::vector<std::uint32_t>;

TEST(Assignment, TheGridOfTheHeader) {
  EXPECT_EQ(leaves_of({4, 1}, 10, 1), (Leaves{2, 3, 4}));
  EXPECT_EQ(leaves_of({1, 4}, 10, 0), (Leaves{0, 4, 8}));
  EXPECT_EQ(leaves_of({1, 4}, 10, 3), (Leaves{3, 7}));
  EXPECT_EQ(leaves_of({2, 2}, 10, 0), (Leaves{0, 2, 4}));
  EXPECT_EQ(leaves_of({2, 2}, 10, 3), (Leaves{6, 8}));
  EXPECT_EQ(leaves_of({1, 4}, 2, 3), Leaves{});
}

TEST(Assignment, RanksThatComputeTogetherHaveTheSameLeaves) {
  const Assignment together{2, 2, 3};
  for (int rank = 0; rank < 24; ++rank) {
    EXPECT_EQ(together.place_of(rank), rank / 3 % 4);
    EXPECT_EQ(leaves_of(together, 10, rank), leaves_of({2, 2}, 10, rank / 3 % 4)) << rank;
  }
}

TEST(Assignment, WeightsThatAddUpToTheLeavesAreTheCounts) {
  const Assignment weighted{.groups = 3, .weights = {7, 7, 2}};
  EXPECT_EQ(leaves_of(weighted, 16, 0), (Leaves{0, 1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(leaves_of(weighted, 16, 2), (Leaves{14, 15}));
  EXPECT_EQ(leaves_of(weighted, 3, 0), (Leaves{0}));  // a short batch, in proportion
  EXPECT_EQ(leaves_of(weighted, 3, 1), (Leaves{1}));
  EXPECT_EQ(leaves_of(weighted, 3, 2), (Leaves{2}));
  EXPECT_EQ(leaves_of(weighted, 1, 2), (Leaves{0}));
  EXPECT_EQ(leaves_of({.groups = 2, .weights = {1'000'000, 1}}, 4'000'000'000, 1).size(), 4000u);
}

TEST(Assignment, EveryLeafHasOneRank) {
  for (const Assignment& assignment : {Assignment{1, 1},
                                       {3, 1},
                                       {1, 3},
                                       {2, 4},
                                       {3, 2},
                                       {1, 8},
                                       {5, 3},
                                       {2, 1, 1, {3, 1}},
                                       {4, 1, 1, {1, 9, 2, 30}}}) {
    for (std::uint32_t total = 1; total < 40; ++total) {
      std::set<std::uint32_t> seen;
      std::size_t count = 0;
      for (int rank = 0; rank < assignment.size(); ++rank) {
        for (const std::uint32_t leaf : leaves_of(assignment, total, rank)) {
          seen.insert(leaf);
          ++count;
        }
      }
      EXPECT_EQ(count, total);
      EXPECT_EQ(seen.size(), total);
      EXPECT_EQ(*seen.rbegin(), total - 1);
    }
  }
}

}  // namespace
}  // namespace trireme::kernel
