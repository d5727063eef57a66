#include "trireme/train/report/straggler_log.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace trireme::train {
namespace {

TEST(StragglerLog, NamesTheRankThatTheOthersWaitedForLongest) {
  StragglerLog log(3);
  log.add(0, 5.0, 9.0);  // sets up memory and kernels
  EXPECT_TRUE(log.empty());
  for (int step = 0; step < 6; ++step) log.add(1, 0.001, 0.1);
  for (int step = 0; step < 4; ++step) log.add(2, 0.05, 0.1);
  EXPECT_EQ(log.text(),
            "rank 2 came last in 4 of 10 steps, by 50 ms on average: 20 % of the steps' time");
  const auto event = nlohmann::json::parse(log.event().line());
  EXPECT_EQ(event["event"], "stragglers");
  EXPECT_EQ(event["steps"], 10);
  EXPECT_EQ(event["last_steps"], (std::vector<int>{0, 6, 4}));
  EXPECT_NEAR(event["behind_seconds"][1].get<double>(), 0.006, 1e-9);
  EXPECT_NEAR(event["behind_seconds"][2].get<double>(), 0.2, 1e-9);
  EXPECT_NEAR(event["seconds"].get<double>(), 1.0, 1e-9);
}

}  // namespace
}  // namespace trireme::train
