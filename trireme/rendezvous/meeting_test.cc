// The lines of processes that wait for others at a meeting, on a virtual clock.
#include "trireme/rendezvous/launchers/socket_meeting.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>

#include "trireme/base/error.h"
#include "trireme/net/endpoint.h"
#include "trireme/net/socket.h"
#include "trireme/rendezvous/client.h"
#include "trireme/rendezvous/coordinator/door.h"
#include "trireme/testing/run_ranks.h"

namespace trireme::rendezvous::meeting_test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;

// The log lines that `wait` writes, with the clock of a simulated rank.
std::string lines_of(const std::function<void(const std::shared_ptr<Waiter>&)>& wait) {
  ::testing::internal::CaptureStderr();
  testing::run_ranks(1, [&](testing::RankContext& rank) { wait(rank.waiter); });
  return ::testing::internal::GetCapturedStderr();
}

RankEnvironment place_of(int rank, int size, bool one_host = true) {
  RankEnvironment env{.rank = rank, .size = size, .local_rank = one_host ? rank : 0};
  env.launcher = "a test";
  env.meeting = {.name = "meeting test " + std::to_string(getpid()),
                 .host = "127.0.0.1",
                 .port = 1,  // nobody listens there
                 .one_host = one_host};
  return env;
}

std::string secret_file() {
  const std::string path = ::testing::TempDir() + "meeting-secret-" + std::to_string(getpid());
  std::ofstream(path) << std::string(32, 's');
  chmod(path.c_str(), 0600);
  return path;
}

TEST(Meeting, ARankSaysThatItWaitsForRankZero) {
  const std::string lines = lines_of([](const std::shared_ptr<Waiter>& waiter) {
    RankEnvironment env = place_of(1, 2);
    EXPECT_THROW(SocketMeeting(env, waiter, seconds(10), {}), TimeoutError);
  });
  EXPECT_EQ(lines,
            "rank 1 waits for rank 0 on this host (2 s so far)\n"
            "rank 1 waits for rank 0 on this host (4 s so far)\n"
            "rank 1 waits for rank 0 on this host (8 s so far)\n");
}

TEST(Meeting, ARankOnAnotherHostSaysWhereItLooks) {
  const std::string secret = secret_file();
  const std::string lines = lines_of([&](const std::shared_ptr<Waiter>& waiter) {
    RankEnvironment env = place_of(1, 2, /*one_host=*/false);
    env.secret_file = secret;
    EXPECT_THROW(SocketMeeting(env, waiter, seconds(3), {}), TimeoutError);
  });
  EXPECT_EQ(lines, "rank 1 waits for rank 0 at 127.0.0.1:1 (2 s so far)\n");
  std::remove(secret.c_str());
}

// A TFJob's pod that was started again while the others go on: rank 0 is in another meeting.
TEST(Meeting, APodOfATFJobIsToldHowItWouldGetBack) {
  const std::string secret = secret_file();
  lines_of([&](const std::shared_ptr<Waiter>& waiter) {
    RankEnvironment env = place_of(1, 2, /*one_host=*/false);
    env.secret_file = secret;
    env.meeting->admits_evaluator = true;
    try {
      SocketMeeting(env, waiter, seconds(3), {});
      ADD_FAILURE() << "it met nobody";
    } catch (const TimeoutError& error) {
      EXPECT_THAT(error.what(), HasSubstr("gets back into the job only if TRIREME_ELASTIC is set"));
    }
  });
  std::remove(secret.c_str());
}

// The others may have one kind of address of rank 0's host, or the other.
TEST(Meeting, RankZeroListensOnAddressesOfBothKinds) {
  const std::string secret = secret_file();
  lines_of([&](const std::shared_ptr<Waiter>& waiter) {
    for (const auto& [host, kinds] : {std::pair("192.0.2.1", std::vector{"127.0.0.1", "::1"}),
                                      {"127.0.0.1", {"127.0.0.1"}},
                                      {"::1", {"::1"}}}) {
      RankEnvironment env = place_of(0, 2, /*one_host=*/false);
      env.secret_file = secret;
      env.meeting->host = host;
      env.meeting->port = 0;
      const SocketMeeting meeting(env, waiter, seconds(3), "lo");
      const std::uint16_t port = net::parse_endpoint(env.coordinator).value().port;
      for (const char* kind : kinds)
        EXPECT_NO_THROW(
            net::dial(*waiter, "tcp " + net::to_string({kind, port}), waiter->now() + seconds(3)))
            << host << " by " << kind;
    }
  });
  std::remove(secret.c_str());
}

TEST(Meeting, RankZeroSaysWhoHasNotCome) {
  std::string place;
  const std::string lines = lines_of([&](const std::shared_ptr<Waiter>& waiter) {
    RankEnvironment env = place_of(0, 12);
    const SocketMeeting meeting(env, waiter, seconds(10), {});
    place = env.coordinator;
    const auto join = [&](int rank) {
      return std::make_unique<CoordinatorClient>(ClientOptions{
          .endpoint = place, .secret = meeting.secret(), .job = env.job, .rank = rank});
    };
    const auto notice = meeting.wait_for_all(env);
    const auto zero = join(0), one = join(1);
    waiter->sleep(seconds(3));
    std::vector<std::unique_ptr<CoordinatorClient>> others;
    for (int rank = 2; rank < 11; ++rank) others.push_back(join(rank));
    waiter->sleep(seconds(3));
    EXPECT_EQ(meeting.wait_for_all(place_of(1, 12)), nullptr) << "one process a host speaks";
  });
  EXPECT_EQ(lines,
            "rank 0 waits for rank 2, rank 3, rank 4, rank 5, rank 6, rank 7, rank 8, rank 9 and 2 "
            "others at " +
                place + " (2 s so far)\nrank 0 waits for rank 11 at " + place + " (4 s so far)\n");
}

TEST(Meeting, AQuickOneSaysNothing) {
  EXPECT_EQ(lines_of([&](const std::shared_ptr<Waiter>& waiter) {
              RankEnvironment env = place_of(0, 2);
              const SocketMeeting meeting(env, waiter, seconds(10), {});
              const auto notice = meeting.wait_for_all(env);
              waiter->sleep(milliseconds(1900));
            }),
            "");
}

TEST(Meeting, AProcessSaysThatItWaitsForTheCoordinator) {
  const std::string lines = lines_of([](const std::shared_ptr<Waiter>& waiter) {
    EXPECT_THROW(enter(*waiter, "127.0.0.1:1", std::string(32, 's'), seconds(5), "process 3"),
                 TimeoutError);
  });
  EXPECT_EQ(lines,
            "process 3 waits for the coordinator at 127.0.0.1:1 (2 s so far)\n"
            "process 3 waits for the coordinator at 127.0.0.1:1 (4 s so far)\n");
}

// The evaluator's: rank 0 does not come any more.
TEST(Meeting, EndsWhenTheTrainingIsOver) {
  int asked = 0;
  skip_meeting([&] { return ++asked == 3; });
  const std::string lines = lines_of([](const std::shared_ptr<Waiter>& waiter) {
    RankEnvironment env = place_of(1, 2);
    try {
      SocketMeeting(env, waiter, seconds(1000), {});
      ADD_FAILURE() << "it met nobody";
    } catch (const PeerLost& error) {
      EXPECT_THAT(error.what(), HasSubstr("the training has ended, and rank 0 is gone"));
    }
  });
  EXPECT_EQ(lines, "");
  skip_meeting({});
}

}  // namespace
}  // namespace trireme::rendezvous::meeting_test
