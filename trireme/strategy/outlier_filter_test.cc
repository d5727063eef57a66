#include "trireme/strategy/outlier_filter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "trireme/base/error.h"
#include "trireme/strategy/step_guards.h"

namespace trireme::outlier_filter_test {
namespace {

using parallel::OutlierFilter;
using ::testing::HasSubstr;

// Losses are 1, 2, 1, 2, ... and norms 10, 20, 10, 20, ...
void settle(OutlierFilter& filter, int steps) {
  for (int i = 0; i < steps; ++i) EXPECT_EQ(filter.judge(1 + i % 2, 10 + 10 * (i % 2)), "");
}

TEST(OutlierFilter, NamesWhatLiesFarAboveTheStepsBefore) {
  OutlierFilter filter({.limit = 3, .window = 8});
  settle(filter, 8);
  // Mean 1.5, deviation sqrt(8 x 0.25 / 7) = 0.5345: three deviations above the mean are 3.10.
  EXPECT_EQ(filter.judge(3.05, 15), "");
  OutlierFilter other({.limit = 3, .window = 8});
  settle(other, 8);
  EXPECT_EQ(other.judge(3.15, 15),
            "its loss of 3.15 is 3.1 standard deviations above the mean of the 8 steps before");
  EXPECT_THAT(other.judge(1, 1e6), HasSubstr("gradient norm of 1e+06"));
  EXPECT_EQ(other.state.skipped, 2);
  EXPECT_EQ(other.judge(-100, -100), "") << "below is no outlier";
}

TEST(OutlierFilter, LeavesNothingOutBeforeHalfTheWindow) {
  OutlierFilter filter({.limit = 3, .window = 8});
  settle(filter, 3);
  EXPECT_EQ(filter.judge(1e6, 10), "");
  OutlierFilter later({.limit = 3, .window = 8});
  settle(later, 4);
  EXPECT_NE(later.judge(1e6, 10), "");
}

TEST(OutlierFilter, AChangeThatLastsIsSoonTheRule) {
  OutlierFilter filter({.limit = 3, .window = 8});
  settle(filter, 8);
  int left_out = 0;
  for (int i = 0; i < 20; ++i) left_out += filter.judge(9 + i % 2, 15).empty() ? 0 : 1;
  EXPECT_GE(left_out, 1);
  EXPECT_LE(left_out, 2);
  EXPECT_EQ(filter.state.losses.size(), 8u);
}

TEST(OutlierFilter, ARunThatIsResumedMayHaveASmallerWindow) {
  OutlierFilter long_one({.limit = 3, .window = 32}), short_one({.limit = 3, .window = 8});
  settle(long_one, 32);
  short_one.state = long_one.state;
  const std::string why = short_one.judge(1e6, 10);
  EXPECT_NE(why.find("of the 8 steps before"), std::string::npos) << why;
  EXPECT_EQ(short_one.state.losses.size(), 8u);
}

TEST(OutlierFilter, EqualValuesHaveNoOutliersByRounding) {
  OutlierFilter filter({.limit = 3, .window = 8});
  for (int i = 0; i < 8; ++i) filter.judge(1, 1);
  EXPECT_EQ(filter.judge(1 + 1e-9, 1), "");
  EXPECT_NE(filter.judge(1.001, 1), "");
}

TEST(OutlierFilter, ACheckpointWithOtherThanPairsIsRefused) {
  parallel::StepGuards guards({.outliers = {.limit = 6, .window = 8}});
  const auto restore = [&](const char* outliers) {
    guards.restore(nlohmann::json{{"outliers", nlohmann::json::parse(outliers)}});
  };
  EXPECT_NO_THROW(restore(R"({"losses": [1, 2], "norms": [1, 2], "skipped": 1})"));
  EXPECT_THROW(restore(R"({"losses": [1, 2], "norms": [1], "skipped": 1})"), CheckpointError);
  EXPECT_THROW(restore(R"({"losses": [1], "norms": [1], "skipped": -1})"), CheckpointError);
}

TEST(OutlierFilter, RefusesNumbersThatCannotBe) {
  EXPECT_THROW(OutlierFilter({.limit = -1}), ConfigError);
  EXPECT_THROW(OutlierFilter({.limit = 3, .window = 2}), ConfigError);
  OutlierFilter off({.limit = 0, .window = 4});
  for (int i = 0; i < 9; ++i) EXPECT_EQ(off.judge(i == 8 ? 1e9 : 1, 1), "");
}

}  // namespace
}  // namespace trireme::outlier_filter_test
