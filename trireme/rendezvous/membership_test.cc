#include "trireme/rendezvous/membership.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <map>
#include <thread>

namespace trireme::rendezvous {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class MembershipTest : public ::testing::Test {
 protected:
  TimePoint at(Duration since_start) const {
    return TimePoint(std::chrono::hours(1)) + since_start;
  }
  void join_all(int size) {
    for (int rank = 0; rank < size; ++rank) {
      members.set_process(rank, 100 + rank, at({}));
      ASSERT_EQ(members.join(rank, "host", "", at({})), std::nullopt);
    }
  }
  void wait(int rank, const std::string& operation, Duration when) {
    members.beat(rank, {.waiting = true, .operation = operation}, at(when));
  }
  void work(int rank, Duration when, Duration since, const std::string& last = "") {
    members.beat(rank, {.waiting = false, .last_call = last, .since = since}, at(when));
  }
  Verdict ask(int self, Duration when) {
    return judge(members.table(at(when)), "all_reduce bucket 2", when,
                 {self, seconds(30), std::chrono::minutes(30)});
  }

  std::map<pid_t, char> states;
  Membership members{Roles{.workers = 4},
                     [this](pid_t pid) { return states.count(pid) ? states[pid] : 'S'; }};
};

TEST_F(MembershipTest, WaitsForARankInUserCodeAndSaysSinceWhen) {
  join_all(4);
  for (int rank = 1; rank < 4; ++rank) wait(rank, "all_reduce bucket 2", seconds(44));
  work(0, seconds(44), seconds(44), "checkpoint.save");
  const Verdict verdict = ask(1, seconds(45));
  EXPECT_TRUE(verdict.keep_waiting);
  EXPECT_TRUE(verdict.speak);
  EXPECT_EQ(verdict.explanation,
            "rank 0 is in user code since 45 s (last call checkpoint.save); 3 ranks wait in "
            "all_reduce bucket 2");
  EXPECT_FALSE(ask(2, seconds(45)).speak) << "one rank speaks for all";
}

TEST_F(MembershipTest, BoundsUserCode) {
  join_all(4);
  const Duration long_time = std::chrono::minutes(31);
  for (int rank = 1; rank < 4; ++rank) wait(rank, "all_reduce bucket 2", long_time);
  work(0, long_time, long_time);
  EXPECT_FALSE(ask(1, long_time).keep_waiting);
}

TEST_F(MembershipTest, WaitsForAStoppedRankThoughItIsSilent) {
  join_all(4);
  for (const int rank : {0, 2, 3}) wait(rank, "all_reduce bucket 2", seconds(59));
  states[101] = 'T';
  Verdict verdict = ask(0, seconds(60));
  EXPECT_TRUE(verdict.keep_waiting);
  EXPECT_THAT(verdict.explanation, HasSubstr("rank 1 is stopped (debugger or SIGSTOP) since 60 s"));
  // Rank 1 continues, but its heartbeats have not come yet: it has the timeout to send them.
  states[101] = 'S';
  for (const int rank : {0, 2, 3}) wait(rank, "all_reduce bucket 2", seconds(61));
  EXPECT_TRUE(ask(0, seconds(61)).keep_waiting);
  for (const int rank : {0, 2, 3}) wait(rank, "all_reduce bucket 2", seconds(91));
  verdict = ask(0, seconds(91));
  EXPECT_EQ(verdict.lost_rank, 1);
}

TEST_F(MembershipTest, ARankIsNotBlamedForTheTimeInWhichItWasStopped) {
  join_all(4);
  for (const int rank : {0, 2, 3}) wait(rank, "all_reduce bucket 2", seconds(60));
  states[101] = 't';
  members.table(at(seconds(60)));
  states[101] = 'R';
  // Rank 1 asks right after it continues. All ranks wait for long, but one was busy just now.
  wait(1, "all_reduce bucket 2", seconds(61));
  EXPECT_TRUE(ask(1, seconds(61)).keep_waiting);
}

TEST_F(MembershipTest, EverybodyWaitingForTheTimeoutIsADeadlock) {
  join_all(4);
  for (int rank = 0; rank < 4; ++rank) {
    work(rank, seconds(1), seconds(1));
  }
  for (int rank = 0; rank < 4; ++rank) wait(rank, "all_reduce bucket 2", seconds(2));
  EXPECT_TRUE(ask(0, seconds(20)).keep_waiting);
  for (int rank = 0; rank < 4; ++rank) wait(rank, "all_reduce bucket 2", seconds(31));
  const Verdict verdict = ask(0, seconds(32));
  EXPECT_FALSE(verdict.keep_waiting);
  EXPECT_EQ(verdict.lost_rank, -1);
  EXPECT_THAT(verdict.explanation, HasSubstr("every rank waits"));
}

TEST_F(MembershipTest, EverybodyWaitingWhileBytesMoveIsNoDeadlock) {
  join_all(4);
  const auto beat = [&](Duration when, std::optional<Duration> moved) {
    for (int rank = 0; rank < 4; ++rank) wait(rank, "all_reduce bucket 2", when);
    members.beat(3, {.waiting = true, .operation = "broadcast", .moved = moved}, at(when));
  };
  beat(seconds(40), milliseconds(10));
  EXPECT_TRUE(ask(0, seconds(41)).keep_waiting);
  beat(seconds(3600), seconds(1));
  EXPECT_TRUE(ask(0, seconds(3601)).keep_waiting) << "longer than timeout.user_code";
  beat(seconds(3640), seconds(41));
  EXPECT_FALSE(ask(0, seconds(3640)).keep_waiting);
}

TEST_F(MembershipTest, ADeadlockSaysWhatEachRankDoesInstead) {
  join_all(4);
  for (const int rank : {0, 2, 3}) wait(rank, "all_reduce bucket 2", seconds(31));
  wait(1, "recv", seconds(31));
  members.table(at(seconds(31)));
  for (const int rank : {0, 2, 3}) wait(rank, "all_reduce bucket 2", seconds(61));
  wait(1, "recv", seconds(61));
  EXPECT_EQ(ask(0, seconds(61)).explanation,
            "every rank waits: rank 0, 2, 3 in all_reduce bucket 2; rank 1 in recv");
}

TEST_F(MembershipTest, AServerOrAnEvaluatorThatWaitsForNothingHidesNoDeadlock) {
  Membership job(Roles{.workers = 2, .servers = 1, .evaluator = true});
  for (const int process : {0, 1, 2}) job.join(process, "host", "", at({}));
  const auto wait_until = [&](Duration when) {
    for (const int rank : {0, 1})
      job.beat(rank, {.waiting = true, .operation = "all_reduce"}, at(when));
    job.beat(2, {.waiting = false}, at(when));
    return judge(job.table(at(when)), "all_reduce", when, {.self = 0, .timeout = seconds(30)});
  };
  EXPECT_TRUE(wait_until(seconds(1)).keep_waiting);
  EXPECT_FALSE(wait_until(seconds(31)).keep_waiting) << "the evaluator has not joined";
  job.join(3, "host", "", at(seconds(32)));
  job.beat(3, {.waiting = false}, at(seconds(62)));
  EXPECT_FALSE(wait_until(seconds(63)).keep_waiting) << "the evaluator has joined";
}

TEST_F(MembershipTest, NamesARankThatEndedLeftOrFellSilent) {
  join_all(4);
  for (int rank = 0; rank < 4; ++rank) wait(rank, "all_reduce bucket 2", seconds(1));
  EXPECT_EQ(ask(0, seconds(40)).lost_rank, 1) << "no heartbeat for 39 s";
  for (int rank = 0; rank < 4; ++rank) wait(rank, "all_reduce bucket 2", seconds(40));
  members.leave(2);
  EXPECT_EQ(ask(0, seconds(40)).lost_rank, 2);
  members.end(2);
  EXPECT_THAT(ask(0, seconds(40)).explanation, HasSubstr("rank 2 has ended"));
}

TEST_F(MembershipTest, RanksAndServersFallSilentButNotSpares) {
  Membership job(Roles{.workers = 3, .servers = 2, .evaluator = true});
  for (int process = 0; process < job.size(); ++process) job.join(process, "host", "", at({}));
  job.set_members({0, 1}, at({}));
  for (const int process : {0, 3}) job.beat(process, {}, at(seconds(9)));
  EXPECT_THAT(job.silent(seconds(6), at(seconds(10))), ElementsAre(1, 4));
  job.leave(4);
  job.forgive(at(seconds(10)));
  EXPECT_THAT(job.silent(seconds(6), at(seconds(15))), IsEmpty());
  EXPECT_THAT(job.silent(seconds(6), at(seconds(17))), ElementsAre(0, 1, 3));
}

TEST_F(MembershipTest, TheFirstCauseDecides) {
  EXPECT_TRUE(members.fail({.rank = 0, .sentence = "lost rank 1", .exit_code = 160}));
  EXPECT_EQ(members.first_failure()->rank, 0);
  EXPECT_TRUE(members.fail({.rank = 1, .sentence = "killed", .exit_code = 137}));
  EXPECT_TRUE(members.fail({.rank = 2, .sentence = "threw", .exit_code = 20}));
  EXPECT_EQ(members.first_failure()->rank, 1);
  EXPECT_FALSE(members.fail({.rank = 1, .sentence = "again", .exit_code = 1}));
  EXPECT_EQ(members.first_failure()->sentence, "killed");
}

TEST_F(MembershipTest, AFailureCountsMoreThanAStop) {
  EXPECT_TRUE(members.fail({.rank = 0, .sentence = "lost rank 2", .exit_code = 160}));
  EXPECT_TRUE(members.fail({.rank = 1, .sentence = "stopped", .exit_code = 143}));
  EXPECT_EQ(members.first_failure()->sentence, "stopped");
  EXPECT_TRUE(members.fail({.rank = 2, .sentence = "killed", .exit_code = 137}));
  EXPECT_EQ(members.first_failure()->sentence, "killed");
}

TEST_F(MembershipTest, RefusesASecondProcessOfARankAndAnotherIdentity) {
  EXPECT_EQ(members.join(0, "a", "seed 7", at({})), std::nullopt);
  EXPECT_THAT(*members.join(0, "b", "seed 7", at({})), HasSubstr("rank 0 has joined already"));
  const std::string refusal = *members.join(1, "a", "seed 8", at({}));
  EXPECT_THAT(refusal, HasSubstr("\"seed 8\" against \"seed 7\""));
  EXPECT_EQ(members.join(1, "a", "seed 7", at({})), std::nullopt);
}

// Else 100 ranks of a host would read 100 files for each of 100 heartbeats.
TEST(Membership, AsksTheSystemForAProcessOnceInAWhileWhoeverAsks) {
  constexpr int kRanks = 100;
  int asked = 0;
  Membership members(Roles{.workers = kRanks}, [&](pid_t) { return ++asked, 'S'; });
  TimePoint now{std::chrono::hours(1)};
  for (int rank = 0; rank < kRanks; ++rank) {
    members.set_process(rank, 100 + rank, now);
    members.join(rank, "host", "", now);
  }
  now += seconds(3);
  for (int rank = 0; rank < kRanks; ++rank, now += std::chrono::microseconds(250)) {
    members.beat(rank, {.waiting = true}, now);
    members.table(now);
  }
  EXPECT_LE(asked, kRanks);
}

TEST(ProcessState, ReadsTheKernelsLetter) {
  EXPECT_EQ(process_state(getpid()), 'R');
  EXPECT_EQ(process_state(1 << 30), '\0');
}

// The kernel removes the file of a process that has ended, even if the file was opened before.
TEST(ProcessState, OfAProcessThatVanishesMeanwhileIsNone) {
  for (int i = 0; i < 300; ++i) {
    const pid_t pid = fork();
    if (pid == 0) _exit(0);
    std::thread reaper([pid] { waitpid(pid, nullptr, 0); });
    try {
      while (process_state(pid) != '\0') {
      }
    } catch (const std::exception& error) {
      ADD_FAILURE() << "process " << i << ": " << error.what();
      i = 300;
    }
    reaper.join();
  }
}

}  // namespace
}  // namespace trireme::rendezvous
