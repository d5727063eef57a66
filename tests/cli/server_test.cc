// Training with parameter servers, as real processes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/cli/command.h"

namespace trireme::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

class Servers : public ::testing::Test {
 protected:
  CommandResult train(const std::string& config, const std::string& run,
                      const std::vector<std::string>& settings, int ranks = 2) const {
    std::vector<std::string> arguments = {"train", config, "--ranks", std::to_string(ranks),
                                          "--out", run};
    for (const std::string& one : settings) arguments.insert(arguments.end(), {"--set", one});
    return trireme_command(arguments).in(folder_.path()).run();
  }
  CommandResult trireme(std::vector<std::string> arguments) const {
    return trireme_command(std::move(arguments)).in(folder_.path()).run();
  }
  // A training with two servers that does not end by itself.
  Command::Running endless(const std::string& staleness = "server.staleness=0") const {
    fs::remove_all(folder_.file("run"));
    const std::string config =
        tiny_config(folder_, "steps = 100000\nvalidate_every = 0\nschedule = \"constant\"\n");
    return trireme_command({"train", config, "--ranks", "2", "--out", "run", "--set",
                            "parallel.sync=server", "--set", "server.count=2", "--set", staleness})
        .in(folder_.path())
        .start();
  }
  std::string hash(const std::string& run) const { return hash_of_run(folder_.file(run)); }
  static pid_t process_of(const Command::Running& running, const std::string& role, int number) {
    for (const pid_t child : descendants(running.pid()))
      if (environment_of(child, "TRIREME_ROLE") == role &&
          environment_of(child, "TRIREME_RANK") == std::to_string(number))
        return child;
    ADD_FAILURE() << "no " << role << " " << number;
    return 0;
  }
  Folder folder_;
};

TEST_F(Servers, SynchronousRunsEndWithTheBitsOfPlainOnes) {
  const std::string config = tiny_config(folder_, "steps = 12\nvalidate_every = 6\n");
  ASSERT_EQ(train(config, "plain", {}).code, 0);
  for (const auto& [ranks, servers] : {std::pair{1, 1}, {2, 3}, {3, 1}}) {
    const std::string run = "served-" + std::to_string(ranks);
    const CommandResult served = train(
        config, run, {"parallel.sync=server", "server.count=" + std::to_string(servers)}, ranks);
    ASSERT_EQ(served.code, 0) << served.out << served.err;
    EXPECT_EQ(served.left_behind, 0);
    EXPECT_THAT(served.out, HasSubstr("server 0: "));  // what it has
    EXPECT_EQ(hash(run), hash("plain")) << ranks << " ranks, " << servers << " servers";
    const CommandResult evaluated = trireme({"eval", run});
    EXPECT_EQ(evaluated.out, trireme({"eval", "plain"}).out) << evaluated.err;
  }
}

// A checkpoint of either kind goes on as the other.
TEST_F(Servers, CheckpointsGoOnWithAndWithoutServers) {
  const std::string config =
      tiny_config(folder_, "steps = 20\nvalidate_every = 0\nschedule = \"constant\"\n");
  ASSERT_EQ(train(config, "whole", {}).code, 0);
  for (const auto& [run, before, after] :
       {std::tuple{"to", "parallel.sync=plain", "parallel.sync=server"},
        {"from", "parallel.sync=server", "parallel.sync=plain"}}) {
    std::vector<std::string> settings = {before, "train.steps=8"};
    if (run == std::string("from")) settings.emplace_back("server.count=2");
    ASSERT_EQ(train(config, run, settings).code, 0);
    const CommandResult resumed = trireme(
        {"train", "--resume", run, "--ranks", "2", "--set", after, "--set", "train.steps=20"});
    EXPECT_EQ(resumed.code, 0) << resumed.out << resumed.err;
    EXPECT_EQ(hash(run), hash("whole")) << run;
  }
}

TEST_F(Servers, AnotherStalenessIsAnotherTraining) {
  const std::string config = tiny_config(folder_, "steps = 3\nschedule = \"constant\"\n");
  ASSERT_EQ(train(config, "run", {"parallel.sync=server"}).code, 0);
  const CommandResult refused = trireme({"train", "--resume", "run", "--ranks", "2", "--set",
                                         "train.steps=6", "--set", "server.staleness=4"});
  EXPECT_EQ(refused.code, 12) << refused.out << refused.err;
  EXPECT_THAT(refused.err, HasSubstr("run was trained with server.staleness = 0, which is now 4 "));
}

TEST_F(Servers, WorkersOnTheirOwnTrainAndResume) {
  const std::string config =
      tiny_config(folder_, "steps = 30\nvalidate_every = 10\nschedule = \"constant\"\n");
  for (const char* own : {"server.staleness=-1", "server.staleness=2", "server.backup=1"}) {
    const CommandResult run = train(config, own, {"parallel.sync=server", own});
    EXPECT_EQ(run.code, 0) << run.out << run.err;
    EXPECT_THAT(run.out, HasSubstr("validation after step"));
    const CommandResult resumed =
        trireme({"train", "--resume", own, "--ranks", "2", "--set", "train.steps=40"});
    EXPECT_EQ(resumed.code, 0) << resumed.out << resumed.err;
    EXPECT_THAT(resumed.out, HasSubstr("continuing after step"));
  }
}

// Also where `trireme resize` has asked for that number, which --resume then takes.
TEST_F(Servers, WorkersOnTheirOwnResumeInAnotherNumber) {
  const std::string config =
      tiny_config(folder_, "steps = 12\nvalidate_every = 0\nschedule = \"constant\"\n");
  ASSERT_EQ(train(config, "run", {"parallel.sync=server", "server.staleness=-1"}).code, 0);
  for (const auto& [ranks, steps] : {std::pair{"4", "train.steps=20"}, {"1", "train.steps=28"}}) {
    const CommandResult resumed =
        trireme({"train", "--resume", "run", "--ranks", ranks, "--set", steps});
    EXPECT_EQ(resumed.code, 0) << resumed.out << resumed.err;
    EXPECT_THAT(resumed.out, HasSubstr("continuing after step"));
  }
}

// The servers' counts are in the events, the report, and what compare prints and draws.
TEST_F(Servers, StalenessIsReported) {
  const std::string config = tiny_config(folder_, "steps = 20\nvalidate_every = 10\n");
  const CommandResult late =
      train(config, "late", {"parallel.sync=server", "server.count=2", "server.staleness=4"});
  ASSERT_EQ(late.code, 0) << late.out << late.err;
  EXPECT_THAT(late.out,
              AllOf(HasSubstr("staleness  share of the gradients"), HasSubstr("2 servers applied"),
                    HasSubstr("dropped 0"), HasSubstr("loss.svg, staleness.svg, ")));
  std::istringstream lines(read_file(folder_.file("late/events.jsonl")));
  nlohmann::json last;
  int events = 0;
  for (std::string line; std::getline(lines, line);) {
    const auto event = nlohmann::json::parse(line);
    if (event["event"] != "servers") continue;
    last = event;
    ++events;
  }
  EXPECT_GE(events, 2);
  EXPECT_GE(last["step"], 20);
  EXPECT_EQ(last["servers"], 2);
  const auto sum = [&](const char* list) {
    std::int64_t all = 0;
    for (const nlohmann::json& count : last[list]) all += count.get<std::int64_t>();
    return all;
  };
  EXPECT_EQ(last["pushes"].size(), 2u);
  EXPECT_EQ(sum("pushes"), sum("staleness_pushes"));
  EXPECT_GE(sum("pushes"), 2 * last["updates"].get<std::int64_t>());
  EXPECT_THAT(read_file(folder_.file("late/staleness.svg")),
              HasSubstr("staleness of the gradients"));
  ASSERT_EQ(train(config, "plain", {}).code, 0);
  EXPECT_FALSE(fs::exists(folder_.file("plain/staleness.svg")));
  const CommandResult compared = trireme({"compare", "late", "plain"});
  EXPECT_EQ(compared.code, 0) << compared.err;
  EXPECT_THAT(compared.out, AllOf(HasSubstr("late   mean "), HasSubstr("compare-staleness.svg")));
  EXPECT_THAT(read_file(folder_.file("compare-staleness.svg")), HasSubstr(">late<"));
}

TEST_F(Servers, GradientsThatBackupWorkersReplaceAreCounted) {
  const std::string config = tiny_config(folder_, "steps = 20\nvalidate_every = 0\n");
  const CommandResult run = train(config, "backup", {"parallel.sync=server", "server.backup=1"});
  ASSERT_EQ(run.code, 0) << run.out << run.err;
  EXPECT_THAT(run.out, AllOf(HasSubstr("0          100 %"), HasSubstr("1 server applied")));
}

TEST_F(Servers, AStopIsFollowedByACheckpointWithTheServersState) {
  auto running = endless();
  ASSERT_TRUE(running.wait_for("expected time")) << running.output();
  running.send(SIGTERM);
  const CommandResult stopped = running.wait(60);
  EXPECT_EQ(stopped.code, 143) << stopped.out << stopped.err;
  EXPECT_EQ(stopped.left_behind, 0);
  EXPECT_THAT(stopped.out, HasSubstr("checkpoint written"));
}

// As Slurm does at a time limit, and systemd. The servers go on until the workers have saved.
TEST_F(Servers, AStopOfEveryProcessIsFollowedByACheckpoint) {
  for (const char* staleness : {"server.staleness=0", "server.staleness=4"}) {
    auto running = endless(staleness);
    ASSERT_TRUE(running.wait_for("expected time")) << running.output();
    for (const int number : {0, 1}) kill(process_of(running, "server", number), SIGTERM);
    for (const int number : {0, 1}) kill(process_of(running, "worker", number), SIGTERM);
    running.send(SIGTERM);
    const CommandResult stopped = running.wait(60);
    EXPECT_EQ(stopped.code, 143) << stopped.out << stopped.err;
    EXPECT_EQ(stopped.left_behind, 0);
    EXPECT_THAT(stopped.out, HasSubstr("checkpoint written")) << stopped.err;
  }
}

TEST_F(Servers, AStopOfOneServerIsFollowedByACheckpoint) {
  for (const auto& [signal, code, staleness] :
       {std::tuple{SIGUSR1, 143, "server.staleness=0"}, {SIGINT, 130, "server.staleness=4"}}) {
    auto running = endless(staleness);
    ASSERT_TRUE(running.wait_for("expected time")) << running.output();
    kill(process_of(running, "server", 1), signal);
    const CommandResult stopped = running.wait(60);
    EXPECT_EQ(stopped.code, code) << stopped.out << stopped.err;
    EXPECT_EQ(stopped.left_behind, 0);
    EXPECT_THAT(stopped.out, HasSubstr("checkpoint written")) << stopped.err;
  }
}

TEST_F(Servers, TheDeathOfOneEndsTheJobAndIsNamed) {
  for (const auto& [role, name] : {std::pair{"server", "server 1"}, {"worker", "rank 1"}}) {
    auto running = endless();
    ASSERT_TRUE(running.wait_for("expected time")) << running.output();
    kill(process_of(running, role, 1), SIGKILL);
    const CommandResult result = running.wait(20);
    EXPECT_EQ(result.code, 128 + SIGKILL) << result.out << result.err;
    EXPECT_THAT(result.err, HasSubstr(name));
    EXPECT_THAT(result.err,
                HasSubstr("trireme: there is no checkpoint to go back to; the job ends."));
    EXPECT_EQ(result.left_behind, 0);
  }
}

TEST_F(Servers, WhatDoesNotGoTogetherIsRefused) {
  const std::string config = tiny_config(folder_, "steps = 3\n");
  const auto refusal = [&](const std::vector<std::string>& settings, int ranks = 2) {
    const CommandResult result = train(config, "refused", settings, ranks);
    EXPECT_EQ(result.code, 2) << result.out << result.err;
    EXPECT_FALSE(fs::exists(folder_.file("refused")));
    return result.err;
  };
  EXPECT_THAT(refusal({"server.staleness=2"}),
              AllOf(HasSubstr("server.staleness = 2"), HasSubstr("parallel.sync")));
  EXPECT_THAT(refusal({"parallel.sync=server", "server.staleness=-2"}), HasSubstr("-1"));
  EXPECT_THAT(refusal({"parallel.sync=server", "server.backup=2"}),
              HasSubstr("server.backup = 2, but the job has 2 workers"));
  EXPECT_THAT(refusal({"parallel.sync=server", "optimizer.name=lamb"}), HasSubstr("lamb"));
  EXPECT_THAT(refusal({"parallel.sync=server", "parallel.tensor=2"}), HasSubstr("parallel.tensor"));
  EXPECT_THAT(refusal({"parallel.sync=server", "server.staleness=-1"}, 3),
              HasSubstr("batches of their own"));
}

}  // namespace
}  // namespace trireme::testing
