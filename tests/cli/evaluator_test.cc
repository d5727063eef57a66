// The evaluator of a training, as a real process, and `trireme eval RUN --follow`.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/cli/command.h"

namespace trireme::testing {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

class Evaluator : public ::testing::Test {
 protected:
  Command command(std::vector<std::string> arguments) const {
    return trireme_command(std::move(arguments)).in(folder_.path());
  }
  // `train` into the folder "run", with an evaluator.
  Command train(const std::string& train_lines, std::vector<std::string> more,
                const std::vector<std::string>& settings) const {
    std::vector<std::string> all = {
        "train", tiny_config(folder_, train_lines), "--out", "run", "--workers", "2", "--evaluator",
        "1"};
    all.insert(all.end(), more.begin(), more.end());
    for (const std::string& one : settings) all.insert(all.end(), {"--set", one});
    return command(all);
  }
  std::vector<Json> events(const std::string& kind) const {
    std::istringstream lines(read_file(folder_.file("run/evaluator.jsonl")));
    std::vector<Json> found;
    for (std::string line; std::getline(lines, line);) {
      found.push_back(Json::parse(line));
      if (found.back().at("event") != kind) found.pop_back();
    }
    return found;
  }
  std::vector<long> steps(const std::string& kind) const {
    std::vector<long> found;
    for (const Json& event : events(kind)) found.push_back(event.at("step"));
    return found;
  }
  void expect_each_once() const {
    const std::vector<long> done = steps("validation");
    EXPECT_TRUE(std::is_sorted(done.begin(), done.end()));
    EXPECT_EQ(std::adjacent_find(done.begin(), done.end()), done.end());
  }
  // Waits until it has made a hundred more steps.
  void train_on(Command::Running& running) const {
    const auto lines = [&] {
      const std::string text = read_file(folder_.file("run/events.jsonl"));
      return std::count(text.begin(), text.end(), '\n');
    };
    const auto before = lines();
    while (lines() < before + 100)
      if (running.wait_for("the job has failed", 0.1)) FAIL() << running.output();
  }
  // The loss that `trireme eval` prints for one checkpoint of the run.
  Json eval_of(long step) const {
    char name[32];
    std::snprintf(name, sizeof name, "step-%08ld", step);
    const std::string alone = folder_.file("alone-" + std::to_string(step));
    fs::create_directories(alone + "/checkpoint");
    fs::copy(folder_.file("run/config.toml"), alone + "/config.toml");
    fs::copy(folder_.file("run/checkpoint/" + std::string(name)), alone + "/checkpoint/" + name);
    return eval(alone);
  }
  Json eval(const std::string& run) const {
    const CommandResult result = command({"eval", run, "--json"}).run();
    EXPECT_EQ(result.code, 0) << result.err;
    return Json::parse(result.out, nullptr, false);
  }
  static pid_t evaluator_of(const Command::Running& running) {
    for (const pid_t child : descendants(running.pid()))
      if (environment_of(child, "TRIREME_ROLE") == "evaluator") return child;
    ADD_FAILURE() << "no evaluator";
    return 0;
  }
  Folder folder_;
};

TEST_F(Evaluator, EachCheckpointIsEvaluatedOnceAsEvalDoesAndTheBestIsARun) {
  const CommandResult result =
      train("steps = 24\n", {}, {"checkpoint.every=6", "checkpoint.keep=9"}).run(120);
  ASSERT_EQ(result.code, 0) << result.out << result.err;
  EXPECT_EQ(result.left_behind, 0);
  // Rank 0 leaves that to the evaluator.
  EXPECT_THAT(result.out, Not(AnyOf(HasSubstr("validation after"), HasSubstr("validation loss"))));
  EXPECT_THAT(result.err, AllOf(HasSubstr("[eval] evaluation after step 6: loss "),
                                HasSubstr("the best of 4 evaluated checkpoints: step ")));
  EXPECT_THAT(steps("validation"), ElementsAre(6, 12, 18, 24));
  double best = 1e9;
  long best_step = 0;
  for (const Json& event : events("validation")) {
    if (event.at("loss").get<double>() >= best) continue;
    best = event.at("loss");
    best_step = event.at("step");
  }
  for (const long step : {6, 24}) {
    const Json said = eval_of(step);
    for (const Json& event : events("validation"))
      if (event.at("step") == step) {
        EXPECT_EQ(event.at("loss"), said.at("loss"));
        EXPECT_EQ(event.at("tokens"), said.at("tokens"));
      }
  }
  const Json said = eval("run/best");
  EXPECT_EQ(said.at("loss"), best);
  EXPECT_EQ(said.at("step"), best_step);
  const CommandResult resumed =
      command({"train", "--resume", "run/best", "--set", "train.steps=30"}).run();
  EXPECT_EQ(resumed.code, 0) << resumed.out << resumed.err;
  EXPECT_THAT(resumed.out, HasSubstr("continuing after step " + std::to_string(best_step)));
  const CommandResult refused = command({"train", "--resume", "run", "--ranks", "2", "--evaluator",
                                         "1", "--set", "train.steps=30"})
                                    .run();
  EXPECT_EQ(refused.code, 2) << refused.err;
  EXPECT_THAT(refused.err, HasSubstr("run/best was continued as a run of its own"));
}

TEST_F(Evaluator, BesideServersWhichServersImplies) {
  const CommandResult result =
      train("steps = 8\n", {"--servers", "2"}, {"checkpoint.every=4"}).run(120);
  ASSERT_EQ(result.code, 0) << result.out << result.err;
  EXPECT_EQ(result.left_behind, 0);
  const std::string config = read_file(folder_.file("run/config.toml"));
  EXPECT_THAT(config, AllOf(HasSubstr("sync = \"server\""), HasSubstr("count = 2")));
  EXPECT_THAT(steps("validation"), ElementsAre(4, 8));
  EXPECT_EQ(eval_of(8).at("loss"), events("validation").back().at("loss"));
}

TEST_F(Evaluator, ItsDeathLeavesTheTrainingAloneAndAnotherGoesOnByHand) {
  auto running = train("steps = 100000\n", {"--validate"},
                       {"checkpoint.every=50", "checkpoint.keep=4", "train.validate_every=50"})
                     .start();
  ASSERT_TRUE(running.wait_for("evaluation after step", 120)) << running.output();
  kill(evaluator_of(running), SIGKILL);
  ASSERT_TRUE(running.wait_for("The job goes on without it.")) << running.output();
  train_on(running);
  running.send(SIGTERM);
  const CommandResult result = running.wait(60);
  EXPECT_EQ(result.code, 143) << result.out << result.err;
  EXPECT_EQ(result.left_behind, 0);
  EXPECT_THAT(result.out, HasSubstr("validation after step 50"));
  EXPECT_THAT(result.err, HasSubstr("the evaluator"));
  const std::size_t before = steps("validation").size();
  const CommandResult by_hand = command({"eval", "run", "--follow"}).run();
  EXPECT_EQ(by_hand.code, 0) << by_hand.out << by_hand.err;
  EXPECT_GT(steps("validation").size(), before);
  expect_each_once();
  EXPECT_FALSE(fs::exists(folder_.file("run/evaluating")));
}

// The evaluator stands still until the training has gone on by several checkpoints.
TEST_F(Evaluator, OneThatIsSlowHoldsNobodyUpAndTakesTheLastCheckpointAllTheSame) {
  auto running =
      train("steps = 100000\n", {}, {"checkpoint.every=10", "checkpoint.keep=2"}).start();
  ASSERT_TRUE(running.wait_for("evaluation after step", 120)) << running.output();
  const pid_t evaluator = evaluator_of(running);
  kill(evaluator, SIGSTOP);
  train_on(running);
  kill(evaluator, SIGCONT);
  running.send(SIGTERM);
  const CommandResult result = running.wait(60);
  EXPECT_EQ(result.code, 143) << result.out << result.err;
  EXPECT_EQ(result.left_behind, 0);
  expect_each_once();
  const Json last = eval("run");
  EXPECT_EQ(steps("validation").back(), last.at("step"));
  EXPECT_EQ(events("validation").back().at("loss"), last.at("loss"));
}

TEST_F(Evaluator, FollowsARunByHandUntilItsTrainingHasEnded) {
  auto training = command({"train", tiny_config(folder_, "steps = 40\n"), "--out", "run", "--set",
                           "checkpoint.every=10", "--set", "checkpoint.keep=9"})
                      .start();
  ASSERT_TRUE(training.wait_for("expected time")) << training.output();
  // Outside of a Command, which would take the training for left behind.
  EXPECT_EQ(std::system(("cd " + folder_.path() +
                         " && " TRIREME_PROGRAM " eval run --follow --json > followed 2> lines")
                            .c_str()),
            0)
      << read_file(folder_.file("lines"));
  const CommandResult trained = training.wait(60);
  EXPECT_EQ(trained.code, 0) << trained.err;
  EXPECT_EQ(read_file(folder_.file("followed")), read_file(folder_.file("run/evaluator.jsonl")));
  EXPECT_THAT(steps("validation"), ElementsAre(10, 20, 30, 40));
  const CommandResult elsewhere = command({"eval", "run", "--follow", "--device", "h200"}).run();
  EXPECT_EQ(elsewhere.code, 2);
  EXPECT_THAT(elsewhere.err, HasSubstr("no such device"));
}

TEST_F(Evaluator, WhatDoesNotGoTogetherIsRefusedBeforeAnythingStarts) {
  const std::string config = tiny_config(folder_, "steps = 3\n");
  const auto refusal = [&](std::vector<std::string> more) {
    std::vector<std::string> all = {"train", config, "--out", "refused", "--workers", "2"};
    all.insert(all.end(), more.begin(), more.end());
    const CommandResult result = command(all).run();
    EXPECT_EQ(result.code, 2) << result.out << result.err;
    EXPECT_FALSE(fs::exists(folder_.file("refused")));
    return result.err;
  };
  EXPECT_THAT(refusal({"--evaluator", "1", "--set", "checkpoint.every=0"}),
              HasSubstr("an evaluator needs checkpoints, but checkpoint.every is 0"));
  EXPECT_THAT(refusal({"--evaluator", "1", "--transport", "sim"}), HasSubstr("comm.transport"));
  EXPECT_THAT(refusal({"--evaluator", "1", "--set", "train.patience=2"}),
              AllOf(HasSubstr("train.patience"), HasSubstr("--validate")));
  EXPECT_THAT(refusal({"--evaluator", "2"}), HasSubstr("--evaluator"));
  EXPECT_THAT(refusal({"--validate"}), HasSubstr("--validate needs --evaluator 1"));
  EXPECT_THAT(refusal({"--servers", "2", "--set", "parallel.sync=zero1"}),
              HasSubstr("--servers 2 cannot be combined with parallel.sync = \"zero1\" (--set)"));
  EXPECT_THAT(refusal({"--servers", "0", "--set", "parallel.sync=server"}),
              HasSubstr("--servers 0 cannot be combined with parallel.sync = \"server\" (--set)"));
  EXPECT_THAT(refusal({"--servers", "2", "--set", "parallel.strategy=CentralStorage"}),
              HasSubstr("parallel.strategy"));
}

}  // namespace
}  // namespace trireme::testing
