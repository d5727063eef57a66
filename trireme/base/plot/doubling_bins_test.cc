#include "trireme/base/plot/doubling_bins.h"

#include <gtest/gtest.h>

#include <utility>

namespace trireme::doubling_bins_test {
namespace {

std::vector<std::pair<std::string, std::int64_t>> bins_of(
    const std::map<std::int64_t, std::int64_t>& counts) {
  std::vector<std::pair<std::string, std::int64_t>> bins;
  for (const CountBin& bin : doubling_bins(counts)) bins.emplace_back(bin.label, bin.count);
  return bins;
}

TEST(DoublingBins, SmallNumbersHaveRowsOfTheirOwn) {
  using Bins = std::vector<std::pair<std::string, std::int64_t>>;
  EXPECT_EQ(bins_of({}), Bins());
  EXPECT_EQ(bins_of({{0, 5}}), (Bins{{"0", 5}}));
  EXPECT_EQ(bins_of({{1, 5}, {3, 1}, {4, 2}, {7, 3}, {8, 1}}),
            (Bins{{"1", 5}, {"2", 0}, {"3", 1}, {"4-7", 5}, {"8-15", 1}}));
  EXPECT_EQ(bins_of({{9, 2}, {1000, 1}}), (Bins{{"8-15", 2},
                                                {"16-31", 0},
                                                {"32-63", 0},
                                                {"64-127", 0},
                                                {"128-255", 0},
                                                {"256-511", 0},
                                                {"512-1023", 1}}));
}

TEST(DoublingBins, SharesAreOfAllCounts) {
  const auto bins = doubling_bins({{0, 1}, {5, 2}, {6, 1}});
  EXPECT_DOUBLE_EQ(bins.front().share, 0.25);
  EXPECT_DOUBLE_EQ(bins.back().share, 0.75);
}

TEST(DoublingBins, SmallSharesAreNotNone) {
  EXPECT_EQ(percent_text(0), "0 %");
  EXPECT_EQ(percent_text(0.004), "0.4 %");
  EXPECT_EQ(percent_text(0.234), "23 %");
  EXPECT_EQ(percent_text(1), "100 %");
}

}  // namespace
}  // namespace trireme::doubling_bins_test
