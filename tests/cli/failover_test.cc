// Servers and workers of a training job that are killed, as real processes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/cli/command.h"

namespace trireme::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class FailOver : public ::testing::Test {
 protected:
  // With two ranks and parameter servers.
  Command train(const std::string& config, const std::string& run,
                const std::vector<std::string>& settings) const {
    std::vector<std::string> arguments = {"train", config, "--ranks", "2", "--out", run};
    for (const std::string& one : settings) arguments.insert(arguments.end(), {"--set", one});
    return trireme_command(arguments).in(folder_.path());
  }
  std::string hash(const std::string& run) const { return hash_of_run(folder_.file(run)); }

  static void kill_process(const Command::Running& running, const std::string& role, int number) {
    for (const pid_t child : descendants(running.pid()))
      if (environment_of(child, "TRIREME_ROLE") == role &&
          environment_of(child, "TRIREME_RANK") == std::to_string(number)) {
        kill(child, SIGKILL);
        return;
      }
    ADD_FAILURE() << "no " << role << " " << number << "\n" << running.output();
  }
  static int times(const std::string& text, const std::string& part) {
    int count = 0;
    for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1))
      ++count;
    return count;
  }
  // Waits until the output has a text for the n-th time.
  static void await(Command::Running& running, const std::string& text, int n) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (times(running.output(), text) < n) {
      ASSERT_LT(std::chrono::steady_clock::now(), end) << text << "\n" << running.output();
      ASSERT_FALSE(running.wait_for("a text that never comes", 0.05));
    }
  }
  std::vector<double> step_seconds(const std::string& run) const {
    std::vector<double> all;
    std::ifstream events(folder_.file(run + "/events.jsonl"));
    for (std::string line; std::getline(events, line);) {
      const auto event = nlohmann::json::parse(line);
      if (event.value("event", "") == "step") all.push_back(event.at("step_seconds"));
    }
    return all;
  }
  Folder folder_;
};

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
