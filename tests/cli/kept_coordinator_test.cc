// Jobs of `trireme train --store` and `launch --store`, whose coordinator is killed and comes back.
#include <gmock/gmock.h>

#include <filesystem>

#include "tests/cli/etcd.h"
#include "tests/cli/failover.h"

namespace trireme::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class Kept : public FailOver {
 protected:
  void SetUp() override {
    config_ = tiny_config(folder_, "steps = 1500\nvalidate_every = 0\nschedule = \"constant\"\n");
    store_ = folder_.file("store");
    std::filesystem::create_directory(store_);
  }
  Command kept(int ranks, const std::vector<std::string>& more = {}) const {
    std::vector<std::string> arguments = {"train",   config_, "--out",   "run",
                                          "--store", store_,  "--ranks", std::to_string(ranks)};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return trireme_command(arguments).in(folder_.path());
  }
  static pid_t coordinator_of(const Command::Running& job) {
    for (const pid_t child : descendants(job.pid()))
      if (read_file("/proc/" + std::to_string(child) + "/cmdline").find("launch-coordinator") !=
          std::string::npos)
        return child;
    return -1;
  }
  static void kill_coordinator(Command::Running& job, int signal = SIGKILL) {
    const pid_t coordinator = coordinator_of(job);
    ASSERT_GT(coordinator, 0) << job.output();
    const int before = times(job.output(), "the coordinator is back.");
    kill(coordinator, signal);
    await(job, "the coordinator is back.", before + 1);
  }
  void expect_undisturbed(Command::Running& job) {
    const CommandResult result = job.wait_beside_others(120);
    EXPECT_EQ(result.code, 0) << result.out << result.err;
    EXPECT_EQ(step_seconds("run").size(), 1500u);
    EXPECT_EQ(hash("run"), undisturbed_hash(1500));
    EXPECT_FALSE(std::filesystem::exists(store_ + "/coordinator.state"));
  }
  std::string config_, store_;
};

TEST_F(Kept, AJobOutlivesItsCoordinator) {
  auto job = kept(2).start();
  ASSERT_TRUE(job.wait_for("expected time")) << job.output();
  for (int i = 0; i < 3; ++i) kill_coordinator(job);
  EXPECT_THAT(job.output(), HasSubstr("the coordinator was killed by signal 9 (SIGKILL). It is "
                                      "started again; the ranks go on meanwhile."));
  expect_undisturbed(job);
}

// It answers nothing any more, so its launcher replaces it.
TEST_F(Kept, AStoppedCoordinatorIsReplaced) {
  auto job = kept(2, {"--set", "train.steps=1000000"}).start();
  ASSERT_TRUE(job.wait_for("expected time")) << job.output();
  kill_coordinator(job, SIGSTOP);
  job.send(SIGTERM);
  EXPECT_EQ(job.wait(60).code, 143);
}

TEST_F(Kept, AnElasticJobLosesRanksAndCoordinators) {
  auto job =
      kept(3, {"--elastic", "1:3", "--set", "parallel.sync=zero1", "--set", "checkpoint.memory=1"})
          .start();
  ASSERT_TRUE(job.wait_for("expected time")) << job.output();
  kill_process(job, "worker", 1);
  ASSERT_TRUE(job.wait_for("process 1 has come")) << job.output();
  kill_coordinator(job);
  kill_process(job, "worker", 0);
  ASSERT_TRUE(job.wait_for("process 0 has come")) << job.output();
  kill_process(job, "worker", 2);  // both at once
  kill(coordinator_of(job), SIGKILL);
  ASSERT_TRUE(job.wait_for("process 2 has come")) << job.output();
  expect_undisturbed(job);
}

TEST_F(Kept, AJobWithServersLosesServersAndCoordinators) {
  auto job = kept(2, {"--set", "parallel.sync=server", "--set", "server.count=2", "--set",
                      "server.replicas=2"})
                 .start();
  ASSERT_TRUE(job.wait_for("expected time")) << job.output();
  kill_process(job, "server", 0);
  await(job, "is back, with a copy of shard", 2);
  kill_coordinator(job);
  kill_process(job, "server", 1);
  await(job, "is back, with a copy of shard", 4);
  kill_process(job, "server", 1);  // both at once
  kill(coordinator_of(job), SIGKILL);
  await(job, "is back, with a copy of shard", 6);
  expect_undisturbed(job);
}

// A worker that trains on its own is replaced, though the coordinator that knew it is not there.
TEST_F(Kept, AWorkerComesBackAfterTheCoordinator) {
  auto job = kept(2, {"--set", "parallel.sync=server", "--set", "server.staleness=-1"}).start();
  ASSERT_TRUE(job.wait_for("expected time")) << job.output();
  kill_coordinator(job);
  kill_process(job, "worker", 1);
  ASSERT_TRUE(job.wait_for("rank 1 was killed by signal 9 (SIGKILL); the job goes on."))
      << job.output();
  const CommandResult result = job.wait(120);
  EXPECT_EQ(result.code, 0) << result.out << result.err;
  EXPECT_EQ(result.left_behind, 0);
}

TEST_F(Kept, ALostRankEndsAJobThatIsNotElastic) {
  auto job = kept(2).start();
  ASSERT_TRUE(job.wait_for("expected time")) << job.output();
  kill_coordinator(job);
  kill_process(job, "worker", 1);
  const CommandResult result = job.wait(60);
  EXPECT_EQ(result.code, 137) << result.out << result.err;
  EXPECT_EQ(result.left_behind, 0);
  EXPECT_THAT(result.err, HasSubstr("rank 1 on host"));
}

TEST_F(Kept, EndsWithItsLauncherAndBeginsAnew) {
  {
    auto job = kept(2, {"--set", "train.steps=1000000"}).start();
    ASSERT_TRUE(job.wait_for("expected time")) << job.output();
    job.send(SIGKILL);
    EXPECT_EQ(job.wait(60).code, 137);
    EXPECT_TRUE(std::filesystem::exists(store_ + "/coordinator.state"));
    std::filesystem::remove_all(folder_.file("run"));
  }
  auto job = kept(2).start();
  expect_undisturbed(job);
}

TEST_F(Kept, StoresThatCannotBeUsedAreRefused) {
  const auto refusal = [&](const std::string& store) {
    const CommandResult result =
        trireme_command({"train", config_, "--ranks", "2", "--store", store, "--out", "refused"})
            .in(folder_.path())
            .run();
    EXPECT_NE(result.code, 0) << result.out;
    return result.err;
  };
  EXPECT_THAT(refusal("nowhere"), HasSubstr("the store nowhere is no folder"));
  EXPECT_THAT(refusal("etcd://127.0.0.1:1/job"), HasSubstr("does not answer"));
  EXPECT_THAT(refusal("s3://bucket"), HasSubstr("is of a kind that is not known"));
  const CommandResult launched =
      trireme_command({"launch", "-n", "1", "--store", "nowhere", "--", "true"})
          .in(folder_.path())
          .run();
  EXPECT_EQ(launched.code, 2) << launched.err;
  EXPECT_THAT(launched.err, HasSubstr("the store nowhere is no folder"));
}

TEST_F(Kept, TwoJobsCannotShareAStore) {
  auto job = kept(2, {"--set", "train.steps=1000000"}).start();
  ASSERT_TRUE(job.wait_for("expected time")) << job.output();
  const CommandResult second =
      trireme_command({"train", config_, "--ranks", "2", "--store", store_, "--out", "second"})
          .in(folder_.path())
          .start()
          .wait_beside_others();
  EXPECT_EQ(second.code, 2) << second.out << second.err;
  EXPECT_THAT(second.err, AllOf(HasSubstr("store"), Not(HasSubstr("threw"))));
  job.send(SIGTERM);
  EXPECT_EQ(job.wait(60).code, 143);
}

// A launcher that waits for its coordinator, which waits for its store, still hears Ctrl-C.
#ifdef TRIREME_ETCD
TEST_F(Kept, KeepsItsStateInEtcdWhichMayBeAwayForAWhile) {
  Etcd etcd(folder_);
  store_ = "etcd://" + etcd.address() + "/jobs/gpt";
  auto job = kept(3, {"--elastic", "1:3"}).start();
  ASSERT_TRUE(job.wait_for("expected time")) << job.output();
  etcd.kill();
  kill_process(job, "worker", 1);
  ASSERT_TRUE(job.wait_for("does not answer")) << job.output();
  etcd.start();
  ASSERT_TRUE(job.wait_for("process 1 has come")) << job.output();
  etcd.kill();
  kill(coordinator_of(job), SIGKILL);  // the next one waits for the store
  ASSERT_TRUE(job.wait_for("the coordinator was killed")) << job.output();
  etcd.start();
  await(job, "the coordinator is back.", 1);
  expect_undisturbed(job);

  std::filesystem::remove_all(folder_.file("run"));
  auto stopped = kept(3, {"--elastic", "1:3", "--set", "train.steps=1000000"}).start();
  ASSERT_TRUE(stopped.wait_for("expected time")) << stopped.output();
  etcd.kill();
  kill_process(stopped, "worker", 1);
  ASSERT_TRUE(stopped.wait_for("does not answer")) << stopped.output();
  for (int i = 0; i < 2; ++i) {
    stopped.send(SIGINT);
    stopped.wait_for("a text that never comes", 1);
  }
  EXPECT_EQ(stopped.wait_beside_others(60).code, 130);
}

TEST_F(Kept, AJobWhoseStoreAnotherTakesOverEnds) {
  Etcd etcd(folder_);
  store_ = "etcd://" + etcd.address() + "/jobs/gpt";
  const std::vector<std::string> long_one = {"--elastic", "1:2", "--set", "train.steps=1000000"};
  auto job = kept(2, long_one).start();
  ASSERT_TRUE(job.wait_for("expected time")) << job.output();
  std::vector<std::string> arguments = {"train",   config_, "--out",   "second",
                                        "--store", store_,  "--ranks", "2"};
  arguments.insert(arguments.end(), long_one.begin(), long_one.end());
  auto second = trireme_command(arguments).in(folder_.path()).start();
  ASSERT_TRUE(second.wait_for("expected time")) << second.output();
  kill_process(job, "worker", 1);
  const CommandResult result = job.wait_beside_others(60);
  EXPECT_EQ(result.code, 10) << result.err;
  EXPECT_THAT(result.err, AllOf(HasSubstr("the job has lost its coordinator"),
                                HasSubstr("another coordinator has taken")));
  second.send(SIGTERM);
  EXPECT_EQ(second.wait_beside_others(60).code, 143);
}
#endif

}  // namespace
}  // namespace trireme::testing
