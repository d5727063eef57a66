// Workers that train on their own, and servers, whose processes others start: each is killed, and so is the
// coordinator.
#include <gmock/gmock.h>

#include "tests/cli/standing.h"

namespace trireme::testing {
namespace {

using ::testing::HasSubstr;

// Two workers and two servers; each server has a copy of the other's shard.
class StandingWorkers : public Standing {
 protected:
  Command worker(int number) const {
    std::vector<std::string> arguments;
    for (const std::string& one : settings_) arguments.insert(arguments.end(), {"--set", one});
    return process(number, 2, arguments)
        .with("TRIREME_ELASTIC", "workers")
        .with("TRIREME_WORKERS", "2")
        .with("TRIREME_SERVERS", "2")
        .with("TRIREME_MORE_WORKERS", "1");
  }
  Command server(int number) const { return worker(number).with("TRIREME_ROLE", "server"); }
  void coordinate() {
    coordinators_.push_back(
        started(coordinator("1:3", {"--workers", "2", "--servers", "2", "--silence", "2"})));
    job_ = coordinators_.back().get();
  }
  void begin(const std::vector<std::string>& settings) {
    settings_.insert(settings_.end(), settings.begin(), settings.end());
    coordinate();
    for (const int number : {0, 1}) servers_.push_back(started(server(number)));
    for (const int number : {0, 1}) workers_.push_back(started(worker(number)));
    ASSERT_TRUE(eventually([&] { return last_servers_event().is_object(); }, 120))
        << workers_[0]->output();
  }
  // A gradient of this worker has come since now.
  void await_push(std::size_t number) {
    ASSERT_TRUE(
        eventually([&, before = pushes_of(number)] { return pushes_of(number) > before; }, 60))
        << job_->output() << workers_[0]->output();
  }
  void lose_worker(int number) {
    std::unique_ptr<Running>& lost = workers_[static_cast<std::size_t>(number)];
    lost->send(SIGKILL);
    const std::string name = "rank " + std::to_string(number);
    ASSERT_TRUE(job_->wait_for(name + " on host")) << job_->output();
    lost = started(worker(number));
    await_push(static_cast<std::size_t>(number));
  }
  // On two servers. Rank 0 asks one after the other, and each other worker may be in the middle of a
  // gradient, which the server with the fewest updates lacks.
  void expect_every_push_once() {
    const nlohmann::json figures = last_servers_event();
    std::int64_t pushes = 0;
    for (const auto& one : figures.at("pushes")) pushes += one.get<std::int64_t>();
    const std::int64_t updates = figures.at("updates"), others = figures.at("pushes").size() - 1;
    EXPECT_GE(pushes, 2 * updates);
    EXPECT_LE(pushes, 2 * updates + others);
  }
  void expect_ends(int code) {
    for (const auto& one : workers_) EXPECT_EQ(end_of(*one).code, code) << one->output();
    for (const auto& one : servers_) EXPECT_EQ(end_of(*one).code, 0) << one->output();
    const CommandResult job = end_of(*job_);
    EXPECT_EQ(job.code, code) << job.err;
  }

  std::vector<std::string> settings_ = {"parallel.sync=server", "server.staleness=-1",
                                        "server.replicas=2"};
  std::vector<std::unique_ptr<Running>> coordinators_, servers_, workers_;
  Running* job_ = nullptr;
};

TEST_F(StandingWorkers, ServersAndTheCoordinatorAreKilledAndOneMoreComes) {
  begin({"train.steps=1000000", "train.validate_every=20"});
  lose_worker(1);
  servers_[0]->send(SIGKILL);
  ASSERT_TRUE(job_->wait_for("server 1 has its shard; the job goes on")) << job_->output();
  servers_[0] = started(server(0));
  ASSERT_TRUE(job_->wait_for("is back, with a copy of shard 1")) << job_->output();
  await_push(0);
  job_->send(SIGKILL);
  await_push(1);  // nobody needs a coordinator for it
  coordinate();
  ASSERT_TRUE(job_->wait_for("goes on with the job in")) << job_->output();
  ASSERT_TRUE(workers_[0]->wait_for("the coordinator is back")) << workers_[0]->output();
  workers_.push_back(started(worker(2)));
  await_push(2);
  lose_worker(0);
  workers_[1]->send(SIGTERM);
  expect_ends(143);
  EXPECT_THAT(workers_[0]->output(), HasSubstr("checkpoint written to"));
  EXPECT_EQ(times(workers_[0]->output(), "validation after step 0:"), 0) << "rank 0 began anew";
  expect_every_push_once();
}

// Rank 0 stops early, so the others are told, and end well: whoever starts processes has nothing left to do.
TEST_F(StandingWorkers, EndWithRankZero) {
  begin({"train.steps=1000000", "train.validate_every=20", "train.patience=1",
         "train.min_improvement=1000", "timeout=5"});
  expect_ends(0);
  EXPECT_THAT(workers_[0]->output(), HasSubstr("stopped early after step"));
  EXPECT_THAT(worker(1).run().err, HasSubstr("nothing is left to do"));
}

// The same commands, when the job has taken its steps: nothing is left to do.
TEST_F(StandingWorkers, TakeTheirStepsOnce) {
  begin({"train.steps=400", "train.validate_every=100", "timeout=5"});
  expect_ends(0);
  EXPECT_THAT(read_file(folder_.file("run/checkpoint/latest")), HasSubstr("400"));
  expect_every_push_once();
  EXPECT_THAT(worker(1).run().err, HasSubstr("nothing is left to do"));
}

TEST_F(StandingWorkers, AreNotMixedUpWithElasticRanks) {
  settings_.push_back("server.staleness=0");
  const CommandResult together = worker(0).run();
  EXPECT_EQ(together.code, 2);
  EXPECT_THAT(together.err, HasSubstr("they train together"));
  settings_.back() = "server.staleness=4";
  const CommandResult alone = worker(0).with("TRIREME_ELASTIC", "1").run();
  EXPECT_EQ(alone.code, 2);
  EXPECT_THAT(alone.err, HasSubstr("coordinator` with --workers N"));
  const auto refusal = [&](const std::vector<std::string>& arguments) {
    std::vector<std::string> all = {"coordinator", "--listen", endpoint_};
    all.insert(all.end(), arguments.begin(), arguments.end());
    const CommandResult result =
        trireme_command(all).in(folder_.path()).with("TRIREME_JOB_SECRET_FILE", secret_).run();
    EXPECT_EQ(result.code, 2) << result.err;
    return result.err;
  };
  EXPECT_THAT(refusal({}), HasSubstr("neither --elastic nor --workers"));
  EXPECT_THAT(refusal({"--workers", "2"}), HasSubstr("need servers"));
  EXPECT_THAT(refusal({"--workers", "4", "--elastic", "1:2", "--servers", "1"}),
              HasSubstr("MAX is at least"));
  EXPECT_THAT(refusal({"--workers", "2", "--servers", "1", "--spares", "1"}),
              HasSubstr("--spares"));
}

}  // namespace
}  // namespace trireme::testing
