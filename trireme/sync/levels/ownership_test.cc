#include "trireme/sync/levels/ownership.h"

#include <gtest/gtest.h>

#include <numeric>

namespace trireme::parallel::ownership_test {
namespace {

Unit::Member member(std::uint32_t parameter, std::int64_t count, std::size_t width = 4) {
  return {.parameter = parameter, .count = count, .width = width};
}

TEST(Ownership, CutsAtChunkEndsOnly) {
  Ownership two(2);
  two.add({member(0, 3 * 4096 + 100), member(1, 4096)});
  EXPECT_EQ(two.pieces()[0], (std::vector<Piece>{{0, 0, 2 * 4096}}));
  EXPECT_EQ(two.pieces()[1], (std::vector<Piece>{{0, 2 * 4096, 3 * 4096 + 100}, {1, 0, 4096}}));
  EXPECT_EQ(two.units()[0].cuts[1], 2 * 4096 * 4u);
}

TEST(Ownership, EveryElementHasOneOwnerAndAnOwnerOneIntervalOfAParameter) {
  const std::vector<std::vector<std::int64_t>> units = {
      {1}, {4096 * 9, 17, 4097}, {}, {5, 5, 5}, {100000, 0, 3}, {4096}, {8191, 8193}};
  for (int owners : {1, 2, 3, 4, 7, 8}) {
    Ownership ownership(owners);
    std::vector<std::int64_t> counts;
    for (const auto& unit : units) {
      std::vector<Unit::Member> members;
      for (const std::int64_t count : unit) {
        members.push_back(member(static_cast<std::uint32_t>(counts.size()), count));
        counts.push_back(count);
      }
      ownership.add(members);
    }
    std::vector<std::int64_t> covered(counts.size(), 0);
    for (int owner = 0; owner < owners; ++owner) {
      std::vector<int> intervals(counts.size(), 0);
      for (const Piece& piece : ownership.pieces()[static_cast<std::size_t>(owner)]) {
        EXPECT_EQ(piece.begin, covered[piece.parameter]) << "owners ascend within a parameter";
        EXPECT_EQ(piece.begin % 4096, 0);
        covered[piece.parameter] = piece.end;
        EXPECT_EQ(++intervals[piece.parameter], 1);
      }
    }
    EXPECT_EQ(covered, counts) << owners;
    for (const Unit& unit : ownership.units()) {
      const auto bytes = unit.counts();
      EXPECT_EQ(std::accumulate(bytes.begin(), bytes.end(), std::size_t(0)), unit.bytes);
      for (const Unit::Member& at : unit.members) EXPECT_EQ(at.offset % 64, 0u);
    }
  }
}

// An owner that gets too much of one unit gets less of the next.
TEST(Ownership, ManySmallUnitsAreSharedEvenly) {
  Ownership ownership(4);
  std::int64_t total = 0;
  for (std::uint32_t i = 0; i < 64; ++i) {
    ownership.add({member(i, 3 * 4096 + 50)});
    total += 3 * 4096 + 50;
  }
  for (const auto& pieces : ownership.pieces()) {
    std::int64_t owned = 0;
    for (const Piece& piece : pieces) owned += piece.size();
    EXPECT_NEAR(static_cast<double>(owned), static_cast<double>(total) / 4, 4 * 4096);
  }
}

}  // namespace
}  // namespace trireme::parallel::ownership_test
