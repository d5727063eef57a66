// Jobs over a simulated group, several in one process.
#include <gtest/gtest.h>

#include <memory>
#include <numeric>
#include <vector>

#include "trireme/base/waiter/real_waiter.h"
#include "trireme/comm/collectives.h"
#include "trireme/job/job.h"
#include "trireme/job/job_changes.h"
#include "trireme/net/alone_transport.h"
#include "trireme/net/sim/sim_network.h"
#include "trireme/observe/machine.h"

namespace trireme {
namespace {

using namespace std::chrono_literals;

TEST(StrategyContext, ARankWithoutANetworkIsOnThisHost) {
  unsetenv("TRIREME_HOST");
  const Job job(std::make_shared<net::AloneTransport>(RealWaiter::make()), {}, nullptr);
  EXPECT_EQ(job.host_name(), observe::host_name());
}

TEST(StrategyContext, RanksOfASimulatedClusterReduceTogether) {
  net::SimNetwork network(5, net::cluster(25us, 1e9));
  int done = 0;
  network.run([&](int rank) {
    Job job(network.transport(rank), {}, nullptr);
    EXPECT_EQ(job.rank(), rank);
    EXPECT_EQ(job.size(), 5);
    EXPECT_EQ(job.num_hosts(), 5);
    EXPECT_EQ(job.host().size(), 1);
    EXPECT_EQ(&job.across(), &job.world());
    const TimePoint start = job.waiter()->now();
    std::vector<float> values(250'000, static_cast<float>(rank));
    all_reduce(job.world(), std::span(values), Sum);
    EXPECT_EQ(values.front(), 10);
    EXPECT_EQ(values.back(), 10);
    EXPECT_GE(job.waiter()->now() - start, 1ms);  // 1 MB at 1 GB/s
    ++done;
  });
  EXPECT_EQ(done, 5);
}

// A peer may compute for longer than the timeout, like a real peer in user code.
TEST(StrategyContext, WaitsForAPeerInUserCode) {
  net::SimNetwork network(2, net::cluster(25us, 1e9));
  network.run([&](int rank) {
    Job job(network.transport(rank), {.timeout = 1s, .timeout_user_code = 60s}, nullptr);
    if (rank == 1) job.waiter()->sleep(5s);
    EXPECT_NO_THROW(job.world().barrier().wait());
  });
}

TEST(StrategyContext, GivesUpWhereAPeerNeverComes) {
  net::SimNetwork network(2, net::cluster(25us, 1e9));
  int failed = 0;
  network.run([&](int rank) {
    Job job(network.transport(rank), {.timeout = 1s, .timeout_user_code = 5s}, nullptr);
    if (rank == 1) return job.waiter()->sleep(60s);
    EXPECT_THROW(job.world().barrier().wait(), TimeoutError);
    ++failed;
  });
  EXPECT_EQ(failed, 1);
}

// Rank 1 was taken for lost and hears it. Over shared memory (comm/shared/board.h) rank 0 gets that error
// from it, perhaps before the coordinator tells of the epoch without rank 1, for which it then waits.
TEST(JobChanges, AnElasticJobGoesOnWithoutARankThatTheCoordinatorHasLeftOut) {
  const auto left_out = [](ErrorContext context) {
    return PeerLost(ExitCode::CoordinatorLost, "the job has gone on without this process", context);
  };
  EXPECT_TRUE(JobChanges::may_go_on_after(left_out({.rank = 0, .peer = 1})));
  EXPECT_FALSE(JobChanges::may_go_on_after(left_out({.rank = 1}))) << "for rank 1 itself";
  EXPECT_FALSE(JobChanges::may_go_on_after(ConfigError("no such key", {.peer = 1})));
}

}  // namespace
}  // namespace trireme
