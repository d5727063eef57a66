// Parameter servers whose processes others start: servers, workers and coordinators that are killed.
#include <gmock/gmock.h>

#include "tests/cli/standing.h"

namespace trireme::testing {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;

// Two synchronous workers, and two servers, each with a copy of the other's shard.
class StandingServers : public Standing {
 protected:
  Command worker(int number) const {
    return process(number, 2, {"--set", "parallel.sync=server", "--set", "server.replicas=2"})
        .with("TRIREME_WORKERS", "2")
        .with("TRIREME_SERVERS", "2");
  }
  Command server(int number) const { return worker(number).with("TRIREME_ROLE", "server"); }
  void coordinate(std::vector<std::string> more = {}) {
    more.insert(more.end(), {"--servers", "2"});
    coordinators_.push_back(started(coordinator("1:2", more)));
    job_ = coordinators_.back().get();
  }
  void begin(const std::vector<std::string>& more = {}) {
    coordinate(more);
    for (const int number : {0, 1}) servers_.push_back(started(server(number)));
    zero_ = started(worker(0));
    one_ = started(worker(1));
    ASSERT_TRUE(job_->wait_for("the job begins with 2 ranks")) << job_->output() << zero_->output();
    await_steps(50);
  }
  void await_copies(int count) {
    ASSERT_TRUE(eventually([&] { return times(job_->output(), "is back, with a copy") == count; }))
        << job_->output();
  }
  void lose(int number) {
    const int before = times(job_->output(), "is back, with a copy");
    std::unique_ptr<Running>& lost = servers_[static_cast<std::size_t>(number)];
    lost->send(SIGKILL);
    ASSERT_TRUE(job_->wait_for("has its shard; the job goes on")) << job_->output();
    lost = started(server(number));
    await_copies(before + 2);
  }
  void expect_job_done() {
    expect_done({zero_.get(), one_.get(), servers_[0].get(), servers_[1].get(), job_});
  }

  std::vector<std::unique_ptr<Running>> coordinators_, servers_;
  std::unique_ptr<Running> zero_, one_;
  Running* job_ = nullptr;
};

// Two servers, each with a copy of the other's shard. Servers, workers and the coordinator are killed, a
// server and the coordinator at the same time, too.
TEST_F(StandingServers, OutliveTheirDeathsAndTheCoordinators) {
  begin();
  lose(0);
  one_->send(SIGKILL);
  ASSERT_TRUE(job_->wait_for("the job goes on with 1 rank")) << job_->output();
  one_ = started(worker(1));
  ASSERT_TRUE(job_->wait_for("process 1 has come; the job goes on with 2 ranks")) << job_->output();
  job_->send(SIGKILL);
  coordinate();
  ASSERT_TRUE(zero_->wait_for("the coordinator is back")) << zero_->output();
  lose(1);
  job_->send(SIGKILL);
  servers_[0]->send(SIGKILL);
  coordinate();
  ASSERT_TRUE(job_->wait_for("server 1 has its shard; the job goes on")) << job_->output();
  servers_[0] = started(server(0));
  expect_job_done();
}

// The others wait for it no longer than the coordinator does.
TEST_F(StandingServers, GoOnWithoutOneThatIsSilent) {
  begin({"--silence", "1"});
  const Running& stopped = *servers_[1];
  stopped.send(SIGSTOP);
  ASSERT_TRUE(job_->wait_for("server 1 has sent no heartbeat for 1 s; server 0 has its shard"))
      << job_->output();
  await_steps(step_seconds("run").size() + 50);
  stopped.send(SIGCONT);
  const CommandResult lost = end_of(*servers_[1]);
  EXPECT_GE(lost.code, 160) << lost.err;
  EXPECT_THAT(lost.err,
              AnyOf(HasSubstr("gone on without this process"), HasSubstr("went on without it")));
  servers_[1] = started(server(1));
  await_copies(2);
  expect_job_done();
}

// Workers do not wait for a server that does not come back, whatever they wait for: they end with the job.
TEST_F(Standing, AJobEndsWithTheOnlyCopyOfAShard) {
  const auto worker = [&](int number) {
    return process(number, 2, {"--set", "parallel.sync=server", "--set", "timeout=1000"})
        .with("TRIREME_WORKERS", "2")
        .with("TRIREME_SERVERS", "1");
  };
  Running job = coordinator("1:2", {"--servers", "1"}).start();
  Running server = worker(0).with("TRIREME_ROLE", "server").with("TRIREME_SIZE", "1").start();
  Running zero = worker(0).start(), one = worker(1).start();
  await_steps(50);
  server.send(SIGKILL);
  const CommandResult result = end_of(job);
  EXPECT_EQ(result.code, 160) << result.err;
  EXPECT_THAT(result.err, HasSubstr("nobody else has its shard"));
  for (Running* worker_process : {&zero, &one}) {
    const CommandResult ended = end_of(*worker_process);
    EXPECT_EQ(ended.code, 160) << "it outlived its coordinator: " << ended.err;
    EXPECT_THAT(ended.err, HasSubstr("nobody else has its shard"));
  }
}

}  // namespace
}  // namespace trireme::testing
