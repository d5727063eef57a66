// Servers and workers of a training job that are killed, as real processes.
#include "tests/cli/failover.h"

#include <gmock/gmock.h>

namespace trireme::testing {
namespace {

using ::testing::HasSubstr;

// Kills servers in turn, each after the one before has all its copies again. The weights at the end
// are those of a run without servers.
TEST_F(FailOver, AJobWithReplicasOutlivesItsServersWithTheSameBits) {
  const std::string config =
      tiny_config(folder_, "steps = 1500\nvalidate_every = 0\nschedule = \"constant\"\n");
  ASSERT_EQ(train(config, "plain", {}).run().code, 0);
  const auto running = [&] {
    return train(config, "served", {"parallel.sync=server", "server.count=2", "server.replicas=2"});
  };
  auto job = running().start();
  ASSERT_TRUE(job.wait_for("expected time")) << job.output();
  const int kills[] = {0, 1, 1};
  for (int i = 0; i < 3; ++i) {
    kill_process(job, "server", kills[i]);
    await(job, "is back, with a copy of shard", 2 * (i + 1));
  }
  const CommandResult result = job.wait(120);
  EXPECT_EQ(result.code, 0) << result.out << result.err;
  EXPECT_EQ(result.left_behind, 0);
  EXPECT_THAT(result.err, HasSubstr("server 0 was killed by signal 9 (SIGKILL); server 1 has its "
                                    "shard; the job goes on."));
  EXPECT_EQ(hash("served"), hash("plain"));
  const auto steps = step_seconds("served");
  ASSERT_EQ(steps.size(), 1500u);
  std::printf("longest step: %.3f s\n", *std::max_element(steps.begin(), steps.end()));
}

TEST_F(FailOver, AWorkerThatTrainsOnItsOwnIsReplaced) {
  const std::string config =
      tiny_config(folder_, "steps = 1500\nvalidate_every = 0\nschedule = \"constant\"\n");
  auto job = train(config, "run", {"parallel.sync=server", "server.staleness=-1"}).start();
  ASSERT_TRUE(job.wait_for("expected time")) << job.output();
  kill_process(job, "worker", 1);
  const CommandResult result = job.wait(120);
  EXPECT_EQ(result.code, 0) << result.out << result.err;
  EXPECT_EQ(result.left_behind, 0);
  EXPECT_THAT(result.err, HasSubstr("rank 1 was killed by signal 9 (SIGKILL); the job goes on."));
}

TEST_F(FailOver, AJobWithoutReplicasGoesBackToItsCheckpoint) {
  const std::string config = tiny_config(
      folder_,
      "steps = 1500\nvalidate_every = 0\nschedule = \"constant\"\n[checkpoint]\nevery = 100\n");
  ASSERT_EQ(train(config, "plain", {}).run().code, 0);
  auto job = train(config, "served", {"parallel.sync=server", "server.count=2"}).start();
  ASSERT_TRUE(job.wait_for("expected time")) << job.output();
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (read_file(folder_.file("served/checkpoint/latest")).empty())
    ASSERT_LT(std::chrono::steady_clock::now(), end) << job.output();
  kill_process(job, "server", 1);
  const CommandResult result = job.wait(120);
  EXPECT_EQ(result.code, 0) << result.out << result.err;
  EXPECT_EQ(result.left_behind, 0);
  EXPECT_THAT(result.err, HasSubstr("server 1 on host"));
  EXPECT_THAT(result.err, HasSubstr("All servers and ranks go back to step "));
  EXPECT_THAT(result.out, HasSubstr("continuing after step"));
  EXPECT_EQ(hash("served"), hash("plain"));
}

TEST_F(FailOver, ReplicasThatDoNotFitAreRefused) {
  const std::string config = tiny_config(folder_, "steps = 3\n");
  const auto refusal = [&](const std::vector<std::string>& settings) {
    const CommandResult result = train(config, "refused", settings).run();
    EXPECT_EQ(result.code, 2) << result.out << result.err;
    return result.err;
  };
  EXPECT_THAT(refusal({"parallel.sync=server", "server.count=2", "server.replicas=3"}),
              HasSubstr("server.replicas = 3 with 2 servers"));
  EXPECT_THAT(refusal({"parallel.sync=server", "server.replicas=0"}), HasSubstr("server.replicas"));
  EXPECT_THAT(refusal({"server.replicas=2", "server.count=2"}), HasSubstr("parallel.sync"));
}

}  // namespace
}  // namespace trireme::testing
