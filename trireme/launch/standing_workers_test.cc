// Who of the workers of a standing coordinator is there, and what follows. Ranks of epochs are tested by
// elastic_group_test and standing_test.
#include "trireme/launch/standing_workers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

namespace trireme::inline v0::launch {
namespace {

// Two workers and up to two more, whose numbers come after that of the one server.
struct WorkersOnTheirOwnTest : ::testing::Test {
  static constexpr int kMore = 3;  // the first of the others' processes
  void restart(bool over, const std::vector<int>& joined) {
    workers =
        workers_on_their_own({.min = 1, .max = 4}, {.workers = 2, .servers = 1, .more_workers = 2},
                             [] { return true; }, {.joined = joined, .over = over});
  }
  void SetUp() override { restart(false, {}); }
  StandingWorkers::Decision lose(int process) { return workers->lost(process, "one is gone", {}); }

  std::unique_ptr<StandingWorkers> workers;
};

TEST_F(WorkersOnTheirOwnTest, ComeAndGoWithoutAnybodyElseChanging) {
  EXPECT_EQ(workers->joined(0).line, "rank 0 has come; 1 worker is there.");
  EXPECT_EQ(workers->joined(kMore).line, "rank 2 has come; 2 workers are there.");
  EXPECT_EQ(workers->joined(kMore).line, "") << "it came back to a coordinator";
  const auto decision = lose(0);
  EXPECT_EQ(decision.line, "one is gone; the job goes on with 1 worker.");
  EXPECT_FALSE(decision.epoch || decision.over || decision.stop || decision.end);
  EXPECT_EQ(workers->lack(), "");
  EXPECT_EQ(lose(kMore).line, "one is gone; the job waits for a worker.");
  EXPECT_NE(workers->lack(), "");
}

// What they would still do is not in the weights that it has saved, but they still need servers.
TEST_F(WorkersOnTheirOwnTest, EndAfterRankZero) {
  for (const int process : {0, 1, kMore}) workers->joined(process);
  const auto early = workers->left(1, 0);
  EXPECT_FALSE(early.over || early.end) << "it had less to do";
  const auto zero = workers->left(0, 0);
  EXPECT_TRUE(zero.over);
  EXPECT_FALSE(zero.end.has_value());
  EXPECT_TRUE(workers->over());
  EXPECT_EQ(lose(kMore).end, 0);
}

TEST_F(WorkersOnTheirOwnTest, DoNotEndBeforeRankZeroHasSaved) {
  for (const int process : {0, 1}) workers->joined(process);
  lose(0);
  EXPECT_FALSE(workers->left(1, 0).end.has_value());
  workers->joined(0);
  EXPECT_EQ(workers->left(0, 0).end, 0);
}

TEST_F(WorkersOnTheirOwnTest, StopWithAnyOfThem) {
  for (const int process : {0, 1, kMore}) workers->joined(process);
  const auto first = workers->left(1, 130);
  EXPECT_EQ(first.stop, SIGINT);
  EXPECT_FALSE(first.over) << "rank 0 saves first";
  EXPECT_FALSE(workers->left(kMore, 130).stop.has_value());
  EXPECT_EQ(lose(0).end, std::nullopt);
  EXPECT_THAT(workers->lack(), ::testing::HasSubstr("rank 0"));
  workers->joined(0);
  EXPECT_EQ(workers->left(0, 130).end, 130);
}

// Another coordinator has told the workers that the training is over.
TEST_F(WorkersOnTheirOwnTest, EndUnderTheNextCoordinator) {
  restart(true, {1, kMore});
  EXPECT_FALSE(workers->left(1, 0).end.has_value());
  EXPECT_FALSE(workers->watch({}, true).end.has_value());
  EXPECT_EQ(workers->left(kMore, 0).end, 0);
  restart(true, {});
  EXPECT_EQ(workers->watch({}, true).end, 0);
}

}  // namespace
}  // namespace trireme::inline v0::launch
