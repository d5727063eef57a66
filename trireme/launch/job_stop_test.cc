// How a job is stopped, and what the launch results in, without processes and without a coordinator.
#include "trireme/launch/job_stop.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include "trireme/base/waiter/real_waiter.h"
#include "trireme/launch/listener_test.h"
#include "trireme/launch/process_starter.h"
#include "trireme/launch/workers.h"

namespace trireme::launch::job_stop_test {
namespace {

using ::testing::ElementsAre;

struct Job {
  explicit Job(LaunchOptions of) : options(std::move(of)) {
    context.waiter = waiter.get();
    context.coordinator = &coordinator;
  }
  LaunchResult result(bool started_all, std::optional<rendezvous::Failure> failure = {}) const {
    return stop.result(started_all, failure);
  }

  LaunchOptions options;
  JobHosts hosts{options};
  JobContext context{options, hosts};
  Listener coordinator;
  Processes processes{context};
  int begun = 0;
  JobStop stop{context, processes, [this] { ++begun; }};
  std::shared_ptr<RealWaiter> waiter = RealWaiter::make(Duration::zero());
};

TEST(JobStop, ExitsAreAskedForOnlyByTheSignalThatWasPassedOn) {
  Job job({.ranks = 2});
  EXPECT_TRUE(job.stop.asked_for({143})) << "a rank's own answer";
  EXPECT_FALSE(job.stop.asked_for({128 + SIGTERM, SIGTERM})) << "somebody else has killed it";
  job.stop.on_signal(SIGHUP);
  EXPECT_EQ(job.stop.first_signal(), SIGHUP);
  EXPECT_EQ(job.stop.stop_signal(), SIGTERM);
  EXPECT_TRUE(job.stop.asked_for({128 + SIGTERM, SIGTERM}));
  EXPECT_FALSE(job.stop.asked_for({128 + SIGKILL, SIGKILL}));
  EXPECT_FALSE(job.stop.asked_for({1}));
}

TEST(JobStop, ASpareThatASignalEndsStopsNobodyElse) {
  Job job({.ranks = 2});
  EXPECT_FALSE(job.stop.asked_for({143}, /*spare=*/true));
  job.processes.note_end(0, {0});
  job.processes.note_end(1, {143});
  job.processes[1].spare = true;
  EXPECT_EQ(job.result(/*started_all=*/true).exit_code, 0);
  job.stop.on_signal(SIGTERM);
  EXPECT_TRUE(job.stop.asked_for({143}, /*spare=*/true)) << "all were asked to stop";
}

TEST(JobStop, AFailedStartStopsTheStarts) {
  Job job({.ranks = 2});
  job.stop.on_failed_start();
  job.stop.on_failed_start();
  EXPECT_TRUE(job.stop.begun());
  EXPECT_EQ(job.begun, 1);
}

TEST(JobStop, BeginsOnceHoweverOftenItIsAsked) {
  Job job({.ranks = 1});
  EXPECT_FALSE(job.stop.begun());
  job.stop.on_signal(SIGINT);
  job.stop.on_signal(SIGTERM);
  EXPECT_TRUE(job.stop.begun());
  EXPECT_FALSE(job.stop.failed());
  EXPECT_EQ(job.stop.first_signal(), SIGINT);
  EXPECT_EQ(job.begun, 1);
}

TEST(JobStop, TheTimeLimitStopsTheStarts) {
  Job job({.ranks = 1, .time_limit = std::chrono::seconds(5)});
  job.stop.on_time_limit();
  EXPECT_TRUE(job.stop.out_of_time());
  EXPECT_TRUE(job.stop.begun());
  EXPECT_EQ(job.begun, 1);
  const LaunchResult result = job.result(/*started_all=*/true);
  EXPECT_TRUE(result.out_of_time);
  EXPECT_EQ(result.exit_code, 161);
  EXPECT_EQ(result.last_line, "killed at its time limit, 5 s.");
}

TEST(LaunchResult, OfAJobThatIsStoppedBeforeItsStartNamesTheSignal) {
  Job job({.ranks = 2});
  job.stop.on_signal(SIGINT);
  const LaunchResult result = job.result(/*started_all=*/false);
  EXPECT_EQ(result.exit_code, 130);
  EXPECT_EQ(result.last_line, "stopped by SIGINT.");
  EXPECT_THAT(result.exit_codes, ElementsAre(-1, -1));
}

TEST(LaunchResult, IsThatOfTheFirstFailure) {
  Job job({.ranks = 2});
  job.processes.note_start(0);
  job.processes.note_end(0, {21});
  job.processes.note_start(1);
  job.processes.note_end(1, {161});
  const LaunchResult result = job.result(
      /*started_all=*/true,
      rendezvous::Failure{.rank = 0, .sentence = "it threw", .exit_code = 21});
  EXPECT_EQ(result.exit_code, 21);
  EXPECT_EQ(result.last_line, "it threw");
  EXPECT_THAT(result.exit_codes, ElementsAre(21, 161));
}

// Ranks 0 and 1 have ended like this after the launcher got SIGTERM.
LaunchResult stopped(const Exit& first, const Exit& second,
                     std::optional<rendezvous::Failure> failure) {
  Job job({.ranks = 2});
  job.stop.on_signal(SIGTERM);
  job.processes.note_end(0, first);
  job.processes.note_end(1, second);
  return job.result(/*started_all=*/true, std::move(failure));
}

TEST(LaunchResult, AFailureDuringAStopIsNoStop) {
  const Exit crash{128 + SIGSEGV, SIGSEGV};
  const rendezvous::Failure crashed{
      .rank = 1, .sentence = "rank 1 crashed", .exit_code = crash.code};
  for (const Exit& other : {Exit{143}, Exit{143, SIGTERM}, Exit{160}}) {
    const LaunchResult result = stopped(other, crash, crashed);
    EXPECT_EQ(result.exit_code, crash.code);
    EXPECT_EQ(result.last_line, "rank 1 crashed");
  }
  const LaunchResult threw =
      stopped({143}, {20}, rendezvous::Failure{.rank = 1, .sentence = "it threw", .exit_code = 20});
  EXPECT_EQ(threw.exit_code, 20);
}

TEST(LaunchResult, AStopIsNoFailureOfThoseThatLostAPeerByIt) {
  const rendezvous::Failure lost{.rank = 1, .sentence = "rank 1 lost rank 0", .exit_code = 160};
  EXPECT_EQ(stopped({143, SIGTERM}, {160}, lost).last_line, "stopped by SIGTERM.");
  const rendezvous::Failure asked{.rank = 0, .sentence = "rank 0 was stopped", .exit_code = 143};
  EXPECT_EQ(stopped({143}, {143}, asked).last_line, "stopped by SIGTERM.");
}

TEST(LaunchResult, NamesTheRankThatWasStoppedWhenOthersOnlyLostIt) {
  Job job({.ranks = 2});
  job.processes.note_end(0, {161});
  job.processes.note_end(1, {143});
  const rendezvous::Failure lost{.rank = 0, .sentence = "rank 0 lost rank 1", .exit_code = 161};
  const LaunchResult result = job.result(/*started_all=*/true, lost);
  EXPECT_EQ(result.exit_code, 143);
  EXPECT_EQ(result.last_line,
            "rank 1 was stopped by SIGTERM, and others lost it: rank 0 lost rank 1");
}

TEST(Processes, CountUntilTheirEndHasBeenHandled) {
  Job job({.ranks = 1});
  EXPECT_FALSE(job.processes.any_runs());
  job.processes.note_start(0);
  EXPECT_TRUE(job.processes[0].runs());
  job.processes.note_end(0, {0});
  EXPECT_FALSE(job.processes[0].runs());
  EXPECT_TRUE(job.processes.any_runs());
  job.processes.settle();
  EXPECT_FALSE(job.processes.any_runs());
}

TEST(Workers, HaveFinishedWhenThoseThatAreLeftHaveEnded) {
  Job job({.ranks = 3});
  ProcessStarter starter(job.context, job.processes, [](int, const std::string&) {});
  int finished = 0;
  Workers workers(job.context, job.processes, starter, job.stop, [&] { ++finished; });
  workers.note_end(workers.count());
  EXPECT_FALSE(workers.can_do_without(0)) << "it validates and saves";
  EXPECT_TRUE(workers.can_do_without(1));
  workers.do_without(1);
  EXPECT_EQ(workers.count(), 2);
  EXPECT_FALSE(workers.can_do_without(2)) << "it is the last one";
  EXPECT_FALSE(workers.finished());
  workers.note_end(workers.count());
  EXPECT_TRUE(workers.finished());
  EXPECT_EQ(finished, 1);
}

// With backup workers the servers wait for all others, but for those that have ended.
TEST(Workers, ThatServersWaitForAreNotDoneWithout) {
  Job job({.ranks = 4});
  job.coordinator.needed = 2;
  ProcessStarter starter(job.context, job.processes, [](int, const std::string&) {});
  Workers workers(job.context, job.processes, starter, job.stop, [] {});
  for (const int worker : {3, 2}) {
    EXPECT_TRUE(workers.can_do_without(worker));
    workers.do_without(worker);
  }
  EXPECT_FALSE(workers.can_do_without(1));

  Workers late(job.context, job.processes, starter, job.stop, [] {});
  late.note_end(4);
  EXPECT_TRUE(late.can_do_without(1));
  late.note_end(4);
  EXPECT_FALSE(late.can_do_without(1)) << "the two that are left wait for each other";
}

}  // namespace
}  // namespace trireme::launch::job_stop_test
