// parallel.expert through the command: the same training on any layout of the other axes,
// checkpoints that any number of ranks can read, refusals with the arithmetic, and no hang.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <nlohmann/json.hpp>

#include "tests/cli/mesh_runs.h"

namespace trireme::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Json = nlohmann::json;

// Trains mixtures of four experts, in micro-batches of four sequences.
class Expert : public MeshRuns {
 protected:
  Expert() : MeshRuns({"model.experts=4", "batch.micro=4"}) {}
};

TEST_F(Expert, TrainsTheSameModelOnAnyMesh) {
  train("one", "1", {});
  const std::string two = train("two", "2", {"parallel.expert=2"});
  EXPECT_GT(validation("two"), 0);
  EXPECT_NEAR(validation("two"), validation("one"), 1e-3 * validation("one"));
  EXPECT_EQ(train("data", "4", {"parallel.expert=2", "parallel.sync=zero3"}), two);
  EXPECT_EQ(train("stages", "4", {"parallel.expert=2", "parallel.pipeline=2"}), two);
  train("four", "4", {"parallel.expert=4"});
  EXPECT_NEAR(validation("four"), validation("one"), 1e-3 * validation("one"));
}

TEST_F(Expert, CheckpointsGoOnWithAnyNumberOfRanks) {
  const std::string before = train("run", "2", {"parallel.expert=2"});
  const double loss = validation("run");
  const CommandResult evaluated = run({"eval", "run", "--json"});
  ASSERT_EQ(evaluated.code, 0) << evaluated.out << evaluated.err;
  EXPECT_NEAR(Json::parse(evaluated.out).at("loss").get<double>(), loss, 1e-4);
  EXPECT_EQ(run({"generate", "run", "--bytes", "5"}).code, 0);
  for (const auto& [ranks, expert] : {std::pair{"1", "1"}, {"4", "4"}, {"2", "2"}}) {
    const std::string axis = std::string("parallel.expert=") + expert;
    // No step is left: the run reads the checkpoint and ends.
    const CommandResult same = run({"train", "--resume", "run", "--ranks", ranks, "--set", axis});
    EXPECT_EQ(same.code, 0) << same.out << same.err;
    EXPECT_EQ(hash("run"), before) << expert;
  }
  const CommandResult more = run({"train", "--resume", "run", "--ranks", "4", "--set",
                                  "parallel.expert=4", "--set", "train.steps=8"});
  EXPECT_EQ(more.code, 0) << more.out << more.err;
  EXPECT_NE(hash("run"), before);
}

TEST_F(Expert, ThePlanCountsARanksExperts) {
  const auto weights = [&](const std::string& expert) {
    const CommandResult result = on("plan", expert, {"parallel.expert=" + expert}, {"--json"});
    return Json::parse(result.out).at("predicted_weight_bytes").get<double>();
  };
  // Two layers of four experts of width 32: 8 x 32 x 32 parameters each.
  EXPECT_EQ(weights("1") - weights("2"), 4.0 * 2 * 2 * 8 * 32 * 32);
  EXPECT_EQ(weights("2") - weights("4"), 4.0 * 2 * 1 * 8 * 32 * 32);
  const CommandResult plan = on("plan", "4", {"parallel.expert=2"});
  EXPECT_THAT(plan.out, AllOf(HasSubstr("2 expert-parallel ranks x 2, plain data parallel"),
                              HasSubstr("parallel.expert = 2 adds in another order")));
}

TEST_F(Expert, RefusesWhatDoesNotDivide) {
  struct Refusal {
    std::string ranks;
    Words assignments;
    std::string what;
  };
  for (const Refusal& one :
       {Refusal{"3", {"parallel.expert=2"}, "does not divide data x shard: 3 = 1 x 2 + 1"},
        {"6", {"parallel.expert=2", "parallel.pipeline=2"}, "6 ranks / 2 = 3, and 3 = 1 x 2 + 1"},
        {"3", {"parallel.expert=3"}, "4 experts on 3 expert-parallel ranks: 4 / 3 leaves 1"},
        {"4",
         {"parallel.expert=4", "batch.micro=2"},
         "2 sequences on 4 expert-parallel ranks leave 2"},
        {"2", {"parallel.expert=2", "model.experts=0"}, "this model has no mixture of experts"}}) {
    for (const char* command : {"plan", "train"}) {
      const CommandResult result = on(command, one.ranks, one.assignments);
      EXPECT_EQ(result.code, 2) << result.out << result.err;
      EXPECT_THAT(result.err, HasSubstr(one.what)) << command;
    }
  }
}

TEST_F(Expert, AKilledRankEndsTheOthersInTime) {
  Command::Running running =
      trireme_command({"train", config_, "--ranks", "2", "--set", "model.experts=4", "--set",
                       "parallel.expert=2", "--set", "train.steps=100000", "--set", "timeout=5"})
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
