// Which processes of an elastic job have places among its ranks, with a coordinator that only listens.
#include "trireme/launch/elastic_ranks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trireme/base/waiter/in_context.h"
#include "trireme/base/waiter/real_waiter.h"
#include "trireme/launch/listener_test.h"

namespace trireme::launch::elastic_ranks_test {
namespace {

using ::testing::ElementsAre;

struct ElasticRanksTest : ::testing::Test {
  explicit ElasticRanksTest(ElasticOptions elastic = {.min = 1, .max = 2, .restarts = 0})
      : options{.ranks = 2, .servers = 1, .evaluator = true, .elastic = elastic} {
    context.waiter = waiter.get();
    for (int process = 0; process < processes.count(); ++process) processes.note_start(process);
    context.coordinator = &coordinator;
  }

  // Ranks 0 and 1; server 0 is process 2, the evaluator process 3.
  const LaunchOptions options;
  JobHosts hosts{options};
  Listener coordinator;
  JobContext context{options, hosts};
  Processes processes{context};
  ProcessStarter starter{context, processes, [](int, const std::string&) {}};
  JobStop stop{context, processes, [this] { starter.stop_restarting(); }};
  Workers workers{context, processes, starter, stop, [] {}};
  ElasticRanks ranks{context, processes, starter, stop, workers};
  std::shared_ptr<RealWaiter> waiter = RealWaiter::make(Duration::zero());
};

TEST_F(ElasticRanksTest, ServersAndTheEvaluatorJoinWithoutAPlace) {
  EXPECT_NO_THROW(ranks.joined(2));
  EXPECT_NO_THROW(ranks.joined(3));
  EXPECT_TRUE(coordinator.epochs.empty());
  EXPECT_TRUE(ranks.lost(1, {.exit = {137, 9}}));
  ranks.joined(1);
  ASSERT_EQ(coordinator.epochs.size(), 2u);
  EXPECT_THAT(coordinator.epochs[0].members, ElementsAre(0));
  EXPECT_THAT(coordinator.epochs[1].members, ElementsAre(0, 1));
}

TEST_F(ElasticRanksTest, AProgramsOwnExitCodeWouldOnlyComeAgain) {
  EXPECT_FALSE(ranks.lost(1, {.exit = {255}})) << "exit(-1)";
  EXPECT_TRUE(ranks.lost(1, {.exit = {161}}));
}

TEST_F(ElasticRanksTest, AProcessThatHasEndedMeanwhileGetsNoPlace) {
  EXPECT_TRUE(ranks.lost(1, {.exit = {137, 9}}));
  ASSERT_EQ(coordinator.epochs.size(), 1u);
  processes.note_end(1, {2});
  EXPECT_TRUE(ranks.lost(1, {.exit = {2}}));
  ranks.joined(1);
  EXPECT_EQ(coordinator.epochs.size(), 1u);
}

// It would wait for ranks that are ending.
TEST_F(ElasticRanksTest, AProcessThatJoinsAJobThatStopsGetsNoPlace) {
  EXPECT_TRUE(ranks.lost(1, {.exit = {137, 9}}));
  ASSERT_EQ(coordinator.epochs.size(), 1u);
  in_context(waiter, [this] {
    for (const int process : {0, 1}) processes.note_end(process, {143});
    stop.on_signal(SIGTERM);
    processes[1].exit.reset();  // another one had been started
    ranks.joined(1);
    ranks.resize(1);
  });
  EXPECT_EQ(coordinator.epochs.size(), 1u);
}

// Until the ranks have met without it, they may need it to end their step.
TEST_F(ElasticRanksTest, AProcessThatWasTakenOutInterruptsNoLaterStep) {
  for (const bool met : {false, true}) {
    SCOPED_TRACE(met);
    ElasticRanks some(context, processes, starter, stop, workers);
    coordinator.epochs.clear();
    coordinator.met = met;
    in_context(waiter, [&] { some.resize(1); });
    ASSERT_EQ(coordinator.epochs.size(), 1u);
    EXPECT_THAT(coordinator.epochs[0].members, ElementsAre(0));
    EXPECT_TRUE(coordinator.epochs[0].at_step_end);
    EXPECT_TRUE(some.lost(1, {.exit = {137, 9}}));
    ASSERT_EQ(coordinator.epochs.size(), met ? 1u : 2u);
    EXPECT_EQ(coordinator.epochs.back().at_step_end, met);
  }
}

struct WaitingRanksTest : ElasticRanksTest {
  WaitingRanksTest() : ElasticRanksTest({.min = 2, .max = 2}) {}
};

// Servers end with the ranks.
TEST_F(WaitingRanksTest, HaveEndedWhenAllProcessesHaveAfterAStop) {
  in_context(waiter, [this] {
    processes.note_end(1, {137, 9});
    EXPECT_TRUE(ranks.lost(1, {.exit = {137, 9}}));
    ASSERT_TRUE(ranks.epoch().members.empty());
    processes.note_end(0, {143});
    ranks.note_end(0);
    EXPECT_FALSE(workers.finished()) << "another process comes";
    stop.on_signal(SIGTERM);
    ranks.note_end(0);
  });
  EXPECT_TRUE(workers.finished());
}

}  // namespace
}  // namespace trireme::launch::elastic_ranks_test
