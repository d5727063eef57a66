// Elastic trainings whose processes are killed, stopped and asked for, as real processes.
#include <gmock/gmock.h>

#include "tests/cli/elastic.h"

namespace trireme::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST_F(Elastic, GoesOnWithoutALostRankAndWithItAgain) {
  auto job = elastic(3, "run", {"--elastic", "1:3"}).start();
  ASSERT_TRUE(job.wait_for("expected time")) << job.output();
  kill_process(job, "worker", 1);
  ASSERT_TRUE(job.wait_for("process 1 has come")) << job.output();
  kill_process(job, "worker", 0);  // rank 0, which writes
  ASSERT_TRUE(job.wait_for("process 0 has come")) << job.output();
  const CommandResult result = job.wait(120);
  expect_undisturbed(result, "run");
  EXPECT_THAT(result.err,
              HasSubstr("rank 1 was killed by signal 9 (SIGKILL); the job goes on with 2 ranks."));
  const auto all = changes("run");
  ASSERT_GE(all.size(), 2u);
  EXPECT_EQ(all[0].at("ranks"), 2);
  EXPECT_LE(times(result.out, "byte trigram with back-off, counted"), 1);
  EXPECT_EQ(all[0].at("steps_repeated"), 0);
  std::printf("went on after %.3f s\n", all[0].at("seconds").get<double>());
}

TEST_F(Elastic, KeepsTheShardsOfALostRankInMemory) {
  for (const char* sync : {"zero1", "zero3"}) {
    auto job = elastic(3, sync,
                       {"--elastic", "1:3", "--set", "checkpoint.memory=1", "--set",
                        "checkpoint.every=0", "--set", std::string("parallel.sync=") + sync})
                   .start();
    ASSERT_TRUE(job.wait_for("expected time")) << job.output();
    kill_process(job, "worker", 2);
    ASSERT_TRUE(job.wait_for("process 2 has come")) << job.output();
    const CommandResult result = job.wait(120);
    expect_undisturbed(result, sync);
    EXPECT_THAT(result.out, ::testing::Not(HasSubstr("goes back"))) << sync;
  }
}

// Two pipelines of two stages, or two pairs of tensor-parallel ranks: whoever is lost, and whenever,
// the ranks that go on have all of the state. train/elastic_training_test does so without copies.
TEST_F(Elastic, GoesOnWithTheCopyOfTheModelThatIsLeft) {
  // Tensor-parallel ranks add in another order than one process.
  const std::string steps = "train.steps=400";  // nobody comes back
  const CommandResult alone =
      elastic(2, "tensor-alone", {"--set", steps, "--set", "parallel.tensor=2"}).run(120);
  ASSERT_EQ(alone.code, 0) << alone.out << alone.err;
  for (const auto& [key, victim, same] : {std::tuple{"parallel.pipeline", 2, undisturbed_hash(400)},
                                          {"parallel.tensor", 1, hash("tensor-alone")}}) {
    const std::string run = std::string(key) + "-run";
    auto job = elastic(4, run,
                       {"--elastic", "2:4", "--restarts", "0", "--set", steps, "--set",
                        std::string(key) + "=2", "--set", "checkpoint.every=0", "--set",
                        "checkpoint.memory=1"})
                   .start();
    ASSERT_TRUE(job.wait_for("expected time")) << job.output();
    kill_process(job, "worker", victim);
    const CommandResult result = job.wait(120);
    EXPECT_EQ(result.code, 0) << result.out << result.err;
    EXPECT_EQ(hash(run), same) << key;
    EXPECT_EQ(step_seconds(run).size(), 400u) << key << ": each step once in the events";
    EXPECT_THAT(result.out, ::testing::Not(HasSubstr("goes back"))) << key;
    EXPECT_THAT(result.err, HasSubstr("the job goes on with 2 ranks")) << key;
  }
}

// The plan's bytes beside those that the ranks took.
TEST_F(Elastic, CopiesAndSnapshotsTakeThePredictedMemory) {
  for (const auto& [sync, every] : {std::pair{"zero1", "1"}, {"zero3", "3"}}) {
    const std::vector<std::string> keys = {
        "--elastic", "1:3",
        "--set",     "checkpoint.memory=1",
        "--set",     std::string("checkpoint.memory_every=") + every,
        "--set",     std::string("parallel.sync=") + sync,
        "--set",     "model.width=128",
        "--set",     "train.steps=20"};
    std::vector<std::string> plan = {"plan", config_, "--ranks", "3"};
    plan.insert(plan.end(), keys.begin(), keys.end());
    const CommandResult planned = trireme_command(plan).in(folder_.path()).run();
    EXPECT_THAT(planned.out,
                AllOf(HasSubstr("\n  snapshot "), HasSubstr("\n  copies   "),
                      HasSubstr("\n  loss     of a rank: the others go on; its part")));
    const std::string run = std::string("copies-") + sync;
    const CommandResult result = elastic(3, run, keys).run();
    ASSERT_EQ(result.code, 0) << result.out << result.err;
    EXPECT_THAT(result.out, ::testing::ContainsRegex("\ncopies +[0-9.]+ [kM]B +[0-9.]+ [kM]B "));
    nlohmann::json last;
    std::ifstream events(folder_.file(run + "/events.jsonl"));
    for (std::string line; std::getline(events, line);)
      if (auto event = nlohmann::json::parse(line); event.value("event", "") == "plan")
        last = std::move(event);
    // Pieces of the largest rank, its buffers and the copies' alignment are not planned for.
    for (const std::string what : {"copy", "snapshot"}) {
      const double predicted = last.at("predicted_" + what + "_bytes");
      EXPECT_NEAR(last.at("measured_" + what + "_bytes"), predicted, 0.05 * predicted)
          << what << ", " << sync;
    }
    EXPECT_GT(last.at("copy_sent_bytes"), 0);
  }
}

// Without copies the job goes back to its checkpoint by itself.
TEST_F(Elastic, GoesBackToACheckpointIfALostRankHadTheOnlyShards) {
  auto job =
      elastic(2, "run",
              {"--elastic", "1:2", "--set", "parallel.sync=zero3", "--set", "checkpoint.every=100"})
          .start();
  await_steps(job, "run", 130);
  kill_process(job, "worker", 1);
  const CommandResult result = job.wait(120);
  expect_undisturbed(result, "run");
  EXPECT_THAT(result.out, HasSubstr("goes back"));
}

TEST_F(Elastic, ASpareTakesTheLostRanksPlace) {
  auto job = elastic(2, "run", {"--spares", "1", "--restarts", "0"}).start();
  ASSERT_TRUE(job.wait_for("expected time")) << job.output();
  kill_process(job, "worker", 1);
  const CommandResult result = job.wait(120);
  expect_undisturbed(result, "run");
  EXPECT_THAT(result.err, HasSubstr("the job goes on with 2 ranks"));
}

// Ranks that leave hand over what only they have.
TEST_F(Elastic, GrowsAndShrinksWhenAsked) {
  auto job =
      elastic(2, "run",
              {"--elastic", "1:4", "--set", "parallel.sync=zero3", "--set", "checkpoint.every=0"})
          .start();
  ASSERT_TRUE(job.wait_for("expected time")) << job.output();
  const auto resize = [&](int ranks) { resize_run(folder_, ranks); };
  resize(4);
  ASSERT_TRUE(job.wait_for("the job goes on with 4 ranks")) << job.output();
  resize(1);
  ASSERT_TRUE(job.wait_for("1 rank went on")) << job.output();
  const CommandResult result = job.wait(120);
  expect_undisturbed(result, "run");
}

// `resize` then says nothing that does not come true.
TEST_F(Elastic, AJobWithAFixedNumberOfRanksIsNotResized) {
  auto job = elastic(2, "run", {"--set", "train.steps=1000000"}).start();
  await_steps(job, "run", 1);
  auto resize = trireme_command({"resize", "run", "4"}).in(folder_.path()).start();
  const CommandResult refused = resize.wait_beside_others(60);
  EXPECT_EQ(refused.code, 2) << refused.out;
  EXPECT_THAT(refused.err, HasSubstr("the job in run has a fixed number of ranks"));
  job.send(SIGINT);
  EXPECT_EQ(job.wait(120).code, 130);
}

// Ctrl-C: the ranks save and end, and the spare does not wait for a place.
TEST_F(Elastic, StopsAtOnceWithItsSpares) {
  auto job = elastic(2, "run", {"--spares", "1"}).start();
  ASSERT_TRUE(job.wait_for("expected time")) << job.output();
  const auto asked = std::chrono::steady_clock::now();
  job.send(SIGINT);
  const CommandResult result = job.wait(60);
  // The launcher would kill it after 30 s.
  EXPECT_LT(std::chrono::steady_clock::now() - asked, std::chrono::seconds(30));
  EXPECT_EQ(result.code, 130) << result.out << result.err;
  EXPECT_EQ(result.left_behind, 0);
  EXPECT_FALSE(read_file(folder_.file("run/checkpoint/latest")).empty());
}

TEST_F(Elastic, GivesUpWithTheReason) {
  auto job = elastic(2, "run", {"--elastic", "2:2", "--restarts", "0"}).start();
  ASSERT_TRUE(job.wait_for("expected time")) << job.output();
  kill_process(job, "worker", 1);
  const CommandResult result = job.wait(60);
  EXPECT_EQ(result.code, 137) << result.out << result.err;
  EXPECT_EQ(result.left_behind, 0);
  EXPECT_THAT(result.err, HasSubstr("fewer than elastic.min = 2"));
}

TEST_F(Elastic, RefusesWhatCannotBeElastic) {
  const auto refusal = [&](const std::vector<std::string>& more) {
    const CommandResult result = elastic(2, "refused", more).run();
    EXPECT_EQ(result.code, 2) << result.out << result.err;
    return result.err;
  };
  EXPECT_THAT(refusal({"--elastic", "3:4"}), HasSubstr("the job starts with 2 ranks"));
  EXPECT_THAT(refusal({"--elastic", "2:1"}), HasSubstr("elastic"));
  EXPECT_THAT(refusal({"--elastic", "some"}), HasSubstr("MIN:MAX"));
  EXPECT_THAT(refusal({"--elastic", "1:2", "--transport", "mpi"}), HasSubstr("MPI world"));
  EXPECT_THAT(refusal({"--elastic", "1:2", "--set", "parallel.sync=gossip"}), HasSubstr("gossip"));
  EXPECT_THAT(refusal({"--elastic", "1:2", "--servers", "1", "--set", "server.backup=1"}),
              HasSubstr("server.backup"));
  EXPECT_THAT(refusal({"--elastic", "1:4000"}), HasSubstr("micro-batch"));
  EXPECT_THAT(refusal({"--set", "checkpoint.memory=1"}), HasSubstr("elastic"));
  const auto launched = [&](std::vector<std::string> words) {
    words.insert(words.begin(), {"launch", "-n", "3"});
    words.insert(words.end(), {"--", "true"});
    const CommandResult result = trireme_command(words).in(folder_.path()).run();
    EXPECT_EQ(result.code, 2) << result.out << result.err;
    return result.err;
  };
  EXPECT_THAT(launched({"--elastic", "2:4", "--multiple", "2"}), HasSubstr("3 ranks"));
  EXPECT_THAT(launched({"--multiple", "3"}), HasSubstr("--elastic MIN:MAX"));
}

// The launcher does not know the `timeout` of the program that it starts. It takes a rank for lost after 6 s
// without a heartbeat, so the job trains for twice as long, however fast its steps are. Its network is so slow
// that it leaves the processor to others.
TEST_F(Elastic, RanksThatArePatientThemselvesAreNotTakenForSilent) {
  auto job =
      trireme_command({"launch", "-n", "2", "--elastic", "1:2", "--", TRIREME_PROGRAM, "train",
                       config_, "--out", "run", "--resume", "auto", "--set", "timeout=300", "--set",
                       "train.steps=1000000", "--set", "train.validate_every=0"})
          .in(folder_.path())
          .with("TRIREME_COMM_TRANSPORT", "tcp")
          .with("TRIREME_COMM_RATE", "1000000")
          .start();
  await_steps(job, "run", 1);
  EXPECT_FALSE(job.wait_for("no heartbeat", 12)) << job.output();
  await_steps(job, "run", step_seconds("run").size() + 1);  // it trains still
  job.send(SIGTERM);
  const CommandResult result = job.wait(60);
  EXPECT_EQ(result.code, 143) << result.out << result.err;
  EXPECT_EQ(result.left_behind, 0);
  EXPECT_THAT(result.err, ::testing::Not(HasSubstr("no heartbeat")));
  EXPECT_TRUE(changes("run").empty());
  const std::string latest = read_file(folder_.file("run/checkpoint/latest"));
  EXPECT_THAT(latest, HasSubstr(std::to_string(step_seconds("run").size()))) << "each step once";
}

}  // namespace
}  // namespace trireme::testing
