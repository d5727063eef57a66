// parallel.tensor through the command: one plan, one training, any layout beside it, and no hang.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <nlohmann/json.hpp>

#include "tests/cli/mesh_runs.h"

namespace trireme::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::json;

class Tensor : public MeshRuns {};

TEST_F(Tensor, TrainsTheSameModelOnAnyMesh) {
  train("one", "1", {});
  const std::string two = train("two", "2", {"parallel.tensor=2"});
  EXPECT_NEAR(validation("two"), validation("one"), 1e-3 * validation("one"));
  EXPECT_GT(validation("two"), 0);
  EXPECT_EQ(train("data", "4", {"parallel.tensor=2", "parallel.sync=zero3"}), two);
  EXPECT_EQ(train("pipeline", "4", {"parallel.tensor=2", "parallel.pipeline=2"}), two);
  train("sequence", "2", {"parallel.tensor=2", "parallel.sequence=true"});
  EXPECT_NEAR(validation("sequence"), validation("one"), 1e-3 * validation("one"));
}

TEST_F(Tensor, WhatWasTrainedOnManyRanksIsReadOnOne) {
  for (const char* axis : {"parallel.tensor=2", "parallel.pipeline=2"}) {
    const std::string out = std::string(axis).substr(9, 6);
    train(out, "2", {axis});
    const CommandResult loss = run({"eval", out, "--json"});
    ASSERT_EQ(loss.code, 0) << loss.out << loss.err;
    EXPECT_NEAR(Json::parse(loss.out).at("loss").get<double>(), validation(out), 1e-4);
    const CommandResult text = run({"generate", out, "--bytes", "5"});
    EXPECT_EQ(text.code, 0) << text.out << text.err;
  }
}

TEST_F(Tensor, GoesOnWithAnotherNumberOfRanks) {
  train("run", "2", {"parallel.tensor=2"});
  const std::string before = hash("run");
  const CommandResult same = run({"train", "--resume", "run", "--ranks", "1", "--set",
                                  "parallel.tensor=1", "--set", "train.steps=8"});
  EXPECT_EQ(same.code, 0) << same.out << same.err;
  EXPECT_NE(hash("run"), before);
}

TEST_F(Tensor, MixturesOfExpertsTrainOnAnyMesh) {
  const std::vector<std::string> experts = {"model.experts=4", "model.top_k=2"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.end(), experts.begin(), experts.end());
    return more;
  };
  const std::string one = train("one", "1", experts);
  EXPECT_NE(one, train("dense", "1", {}));
  EXPECT_EQ(train("sharded", "2", with({"parallel.sync=zero3"})), one);
  EXPECT_EQ(train("stages", "2", with({"parallel.pipeline=2"})), one);
  for (const char* axis : {"parallel.tensor=2", "parallel.context=2"}) {
    const std::string out = std::string(axis).substr(9, 4);
    train(out, "2", with({axis}));
    EXPECT_NEAR(validation(out), validation("one"), 2e-2 * validation("one")) << axis;
  }
  const CommandResult plan = run({"plan", config_, "--set", "model.experts=4"});
  EXPECT_THAT(plan.out, HasSubstr("4 experts, 2 a token"));
}

TEST_F(Tensor, GatedMlpsTrainOnAnyMesh) {
  const std::vector<std::string> gated = {"model.activation=swiglu", "model.hidden=24"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.end(), gated.begin(), gated.end());
    return more;
  };
  const std::string one = train("one", "1", gated);
  EXPECT_EQ(train("sharded", "2", with({"parallel.sync=zero3"})), one);
  train("cut", "2", with({"parallel.tensor=2"}));
  EXPECT_NEAR(validation("cut"), validation("one"), 1e-3 * validation("one"));
  const CommandResult plan =
      run({"plan", config_, "--set", "model.activation=swiglu", "--set", "model.hidden=24"});
  EXPECT_THAT(plan.out, HasSubstr("swiglu"));
  const CommandResult wrong = run({"plan", config_, "--set", "model.activation=relu"});
  EXPECT_EQ(wrong.code, 2);
  EXPECT_THAT(wrong.err, HasSubstr("swiglu"));
  const CommandResult uneven = run({"train", config_, "--ranks", "2", "--out", "uneven", "--set",
                                    "parallel.tensor=2", "--set", "model.hidden=25"});
  EXPECT_EQ(uneven.code, 2);
  EXPECT_THAT(uneven.err, HasSubstr("25 / 2 leaves 1"));
}

TEST_F(Tensor, ThePlanSaysWhatItIs) {
  const CommandResult plan =
      run({"plan", config_, "--ranks", "4", "--set", "parallel.tensor=2", "--set",
           "parallel.sequence=true", "--set", "parallel.sync=zero1"});
  EXPECT_EQ(plan.code, 0) << plan.err;
  EXPECT_THAT(plan.out, AllOf(HasSubstr("2 tensor-parallel ranks (and sequence parallel) x 2"),
                              HasSubstr("agree within a tolerance")));
  const auto weights = [&](const char* tensor) {
    const CommandResult result = run({"plan", config_, "--ranks", tensor, "--json", "--set",
                                      std::string("parallel.tensor=") + tensor});
    return Json::parse(result.out).at("predicted_weight_bytes").get<double>();
  };
  EXPECT_NEAR(weights("2"), weights("1") / 2, 1);
}

TEST_F(Tensor, RefusesWhatDoesNotDivide) {
  for (const char* command : {"plan", "train"}) {
    const CommandResult ranks =
        run({command, config_, "--ranks", "3", "--set", "parallel.tensor=2"});
    EXPECT_EQ(ranks.code, 2) << ranks.out;
    EXPECT_THAT(ranks.err, HasSubstr("3 = 1 x 2 + 1"));
  }
  const CommandResult heads =
      run({"train", config_, "--ranks", "3", "--set", "parallel.tensor=3", "--out", "none"});
  EXPECT_EQ(heads.code, 2) << heads.out;
  EXPECT_THAT(heads.err, HasSubstr("/ 3 leaves"));
}

TEST_F(Tensor, AKilledRankEndsTheOthersInTime) {
  Command::Running running =
      trireme_command({"train", config_, "--ranks", "2", "--set", "parallel.tensor=2", "--set",
                       "train.steps=100000", "--set", "timeout=5"})
          .in(folder_.path())
          .start();
  ASSERT_TRUE(running.wait_for("expected time")) << running.output();
  for (const pid_t child : descendants(running.pid()))
    if (environment_of(child, "TRIREME_RANK") == "1") kill(child, SIGKILL);
  const CommandResult result = running.wait(40);
  EXPECT_FALSE(result.timed_out) << result.out << result.err;
  EXPECT_EQ(result.code, 128 + SIGKILL);
  EXPECT_EQ(result.left_behind, 0);
  EXPECT_THAT(result.err, HasSubstr("rank 1"));
}

}  // namespace
}  // namespace trireme::testing
