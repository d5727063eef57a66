// Elastic jobs that lose a process for good: a parameter server that cannot be started again, and one
// that falls silent and is needed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <optional>
#include <string>

#include "trireme/base/event.h"
#include "trireme/job.h"
#include "trireme/job/job.h"
#include "trireme/job/job_servers.h"
#include "trireme/launch/launch.h"
#include "trireme/rendezvous/heartbeat.h"
#include "trireme/rendezvous/secret.h"
#include "trireme/testing/run_processes.h"

namespace trireme::elastic_servers_test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;

constexpr int kServers = 2;
constexpr milliseconds kPause(10);

// Both servers have both shards.
bool all_copied(const rendezvous::ServerView& view) {
  return view.has_copy(0, 1) && view.has_copy(1, 0);
}

// Says that the other one has a copy of its shard, until that is known.
int serve(const Job& job) {
  Event pauses;  // never set
  for (bool told = false; !job.finished(); pauses.wait(kPause)) {
    const auto view = job.servers().view();
    if (told || !view->complete()) continue;
    const int own = job.rank(), other = 1 - own;
    job.servers().tell_copy(own, view->shards[own].term, other, view->servers[other].incarnation);
    told = true;
  }
  return 0;
}

// Says "copied" when server 1 may be lost. Ends some time after that.
int train(const Job& job) {
  Event pauses;  // never set
  bool said = false;
  for (int lost = 0; lost < 50; pauses.wait(kPause)) {
    const auto view = job.servers().view();
    if (said && !view->servers[1].up) ++lost;
    if (said || !all_copied(*view)) continue;
    std::printf("copied\n");
    std::fflush(stdout);
    said = true;
  }
  return 0;
}

TRIREME_PROCESS(elastic_with_servers) {
  Job job(argc, argv);
  return job.role() == Role::Server ? serve(job) : run_elastic(job, [&] { return train(job); });
}

TEST(ElasticServers, AServerThatCannotBeStartedAgainIsNoRank) {
  const std::filesystem::path program =
      std::filesystem::path(::testing::TempDir()) / ("elastic-servers-" + std::to_string(getpid()));
  launch::LaunchOptions options =
      testing::process_launch_options(1, "elastic_with_servers", {.time_limit = seconds(60)});
  std::filesystem::create_symlink(options.command[0], program);
  options.command[0] = program;
  options.servers = kServers;
  options.elastic = launch::ElasticOptions{.min = 1, .max = 1};
  options.handle_signals = false;
  std::map<int, pid_t> pids;
  options.on_start = [&](int process, pid_t pid) { pids[process] = pid; };
  options.on_line = [&](int, bool, std::string_view line) {
    if (line != "copied") return;
    std::filesystem::remove(program);
    testing::send_signal(pids[2], SIGKILL);
  };
  const launch::LaunchResult result = launch::launch(options);
  EXPECT_EQ(result.exit_code, 0) << result.last_line;
  ASSERT_EQ(result.exit_codes.size(), 3u);
  EXPECT_EQ(result.exit_codes[0], 0);
  EXPECT_EQ(result.exit_codes[1], 0);
  EXPECT_EQ(result.exit_codes[2], -1) << "it was started again";
  std::filesystem::remove(program);
}

// Joins as process 0 or 1. Process 1 sends no heartbeat.
TRIREME_PROCESS(second_is_silent) {
  const bool silent = std::string(std::getenv("TRIREME_ROLE")) == "server" ||
                      std::string(std::getenv("TRIREME_RANK")) == "1";
  rendezvous::CoordinatorClient client(
      {.endpoint = std::getenv("TRIREME_COORDINATOR"),
       .secret = rendezvous::read_secret_descriptor(std::atoi(std::getenv("TRIREME_SECRET_FD"))),
       .job = std::getenv("TRIREME_JOB"),
       .rank = silent ? 1 : 0});
  rendezvous::StatusPage status;
  std::optional<rendezvous::Heartbeat> heartbeat;
  if (!silent) heartbeat.emplace(client, status, seconds(10));
  for (;;) pause();
}

TEST(ElasticServers, ASilentProcessThatIsNeededFailsTheJob) {
  for (const bool server : {false, true}) {
    launch::LaunchOptions options = testing::process_launch_options(
        server ? 1 : 2, "second_is_silent", {.time_limit = seconds(60)});
    options.servers = server ? 1 : 0;
    options.elastic = launch::ElasticOptions{
        .min = options.ranks, .max = options.ranks, .restarts = 0, .silence = seconds(1)};
    options.handle_signals = false;
    const launch::LaunchResult result = launch::launch(options);
    EXPECT_EQ(result.exit_code, 128 + SIGKILL) << result.last_line;
    EXPECT_THAT(result.last_line, HasSubstr(server ? "server 0" : "rank 1"));
  }
}

}  // namespace
}  // namespace trireme::elastic_servers_test
