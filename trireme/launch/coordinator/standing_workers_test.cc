// Who of the workers of a standing coordinator is there, and what follows. Ranks of epochs are tested by
// elastic_group_test and standing_test.
#include "trireme/launch/coordinator/standing_workers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

namespace trireme::inline v0::launch {
namespace {

// Two workers and up to two more, whose numbers come after that of the one server.
struct WorkersOnTheirOwnTest : ::testing::Test {
  static constexpr int kMore = 3;  // the first of the others' processes
  void restart(std::optional<int> ended_with, const std::vector<int>& joined) {
    workers =
        workers_on_their_own({.min = 1, .max = 4}, {.workers = 2, .servers = 1, .more_workers = 2},
                             [] { return true; }, {.joined = joined, .ended_with = ended_with});
  }
  void SetUp() override { restart({}, {}); }
  StandingWorkers::Decision lose(int process) { return workers->lost(process, "one is gone", {}); }
  // The exit code with which the job has ended; servers are then told.
  std::optional<int> end() {
    const auto decision = workers->watch({}, /*servers=*/true);
    EXPECT_EQ(decision.exit_code.has_value(), decision.end_told_to == Tell::All);
    return decision.exit_code;
  }
  using Tell = StandingWorkers::Tell;

  std::unique_ptr<StandingWorkers> workers;
};

TEST_F(WorkersOnTheirOwnTest, ComeAndGoWithoutAnybodyElseChanging) {
  EXPECT_EQ(workers->joined(0).line, "rank 0 has come; 1 worker is there.");
  EXPECT_EQ(workers->joined(kMore).line, "rank 2 has come; 2 workers are there.");
  EXPECT_EQ(workers->joined(kMore).line, "") << "it came back to a coordinator";
  const auto decision = lose(0);
  EXPECT_EQ(decision.line, "one is gone; the job goes on with 1 worker.");
  EXPECT_FALSE(decision.epoch || decision.stop || decision.exit_code);
  EXPECT_EQ(decision.end_told_to, Tell::Nobody);
  EXPECT_EQ(end(), std::nullopt);
  EXPECT_EQ(workers->lack(), "");
  EXPECT_EQ(lose(kMore).line, "one is gone; the job waits for a worker.");
  EXPECT_NE(workers->lack(), "");
}

// Their further work is not in the weights that it has saved, but they still need servers.
TEST_F(WorkersOnTheirOwnTest, EndAfterRankZero) {
  for (const int process : {0, 1, kMore}) workers->joined(process);
  EXPECT_EQ(workers->left(1, 0).end_told_to, Tell::Nobody) << "it had less to do";
  EXPECT_EQ(end(), std::nullopt);
  EXPECT_EQ(workers->left(0, 0).end_told_to, Tell::Workers);
  EXPECT_EQ(end(), std::nullopt);
  EXPECT_TRUE(workers->over());
  lose(kMore);
  EXPECT_EQ(end(), 0);
}

TEST_F(WorkersOnTheirOwnTest, DoNotEndBeforeRankZeroHasSaved) {
  for (const int process : {0, 1}) workers->joined(process);
  lose(0);
  workers->left(1, 0);
  EXPECT_EQ(end(), std::nullopt);
  workers->joined(0);
  workers->left(0, 0);
  EXPECT_EQ(end(), 0);
}

TEST_F(WorkersOnTheirOwnTest, StopWithAnyOfThem) {
  for (const int process : {0, 1, kMore}) workers->joined(process);
  const auto first = workers->left(1, 130);
  EXPECT_EQ(first.stop, SIGINT);
  EXPECT_EQ(first.end_told_to, Tell::Nobody) << "rank 0 saves first";
  EXPECT_FALSE(workers->left(kMore, 130).stop.has_value());
  lose(0);
  EXPECT_EQ(end(), std::nullopt);
  EXPECT_THAT(workers->lack(), ::testing::HasSubstr("rank 0"));
  workers->joined(0);
  workers->left(0, 130);
  EXPECT_EQ(end(), 130);
}

// It had taken its last step when the other one was asked to stop.
TEST_F(WorkersOnTheirOwnTest, StopThoughRankZeroHasDoneAll) {
  for (const int process : {0, 1}) workers->joined(process);
  workers->left(1, 143);
  EXPECT_EQ(workers->left(0, 0).told_code, 143);
  EXPECT_EQ(end(), 143);
}

// Another coordinator has told the workers that the training is over.
TEST_F(WorkersOnTheirOwnTest, EndUnderTheNextCoordinator) {
  restart(0, {1, kMore});
  workers->left(1, 0);
  EXPECT_EQ(end(), std::nullopt);
  workers->left(kMore, 0);
  EXPECT_EQ(end(), 0);
  restart(0, {});
  EXPECT_EQ(end(), 0) << "all had gone before";
  restart(143, {});
  EXPECT_EQ(end(), 143) << "they had stopped as they were asked";
}

// The coordinator that saw process 2 come has been replaced.
TEST(RanksOfEpochs, BeginWithoutAProcessThatIsGoneBefore) {
  const auto ranks = ranks_of_epochs({.min = 1, .max = 3}, {}, {.joined = {0, 1, 2}});
  ranks->lost(2, "process 2 has not come back", {});
  const auto first = ranks->watch({}, /*servers=*/true);
  ASSERT_TRUE(first.epoch);
  EXPECT_EQ(first.epoch->members, (std::vector<int>{0, 1}));
}

TEST(RanksOfEpochs, EndUnderTheNextCoordinatorAsTheyHaveEnded) {
  const rendezvous::Epoch two{.number = 1, .members = {0, 1}};
  const auto all = [&](std::optional<int> ended_with) {
    return ranks_of_epochs({.min = 1, .max = 2}, {},
                           {.epoch = two, .joined = {0, 1}, .ended_with = ended_with});
  };
  auto ranks = all({});
  EXPECT_EQ(ranks->left(0, 143).told_code, 143);
  ranks = all(143);
  EXPECT_TRUE(ranks->over());
  ranks->lost(0, "rank 0 was gone before this coordinator began", {});
  EXPECT_EQ(ranks->lost(1, "rank 1 was gone before this coordinator began", {}).exit_code, 143);
}

}  // namespace
}  // namespace trireme::inline v0::launch
