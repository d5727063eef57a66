// Servers and workers of a training job that are killed, as real processes.
#include "tests/cli/failover.h"

#include <gmock/gmock.h>

#include "trireme/observe/events.h"

namespace trireme::testing {
namespace {

using ::testing::HasSubstr;

// Kills servers in turn, each after the one before has all its copies again. The weights at the end
// are those of a run without servers.
TEST_F(FailOver, AJobWithReplicasOutlivesItsServersWithTheSameBits) {
  const std::string config =
      tiny_config(folder_, "steps = 1500\nvalidate_every = 0\nschedule = \"constant\"\n");
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
  EXPECT_EQ(hash("served"), undisturbed_hash(1500));
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

// Rank 0 validates, saves and writes the events. Its successor goes on with each.
TEST_F(FailOver, RankZeroThatTrainsOnItsOwnIsReplaced) {
  const std::string config = tiny_config(
      folder_,
      "steps = 1500\nvalidate_every = 100\nschedule = \"constant\"\n[checkpoint]\nevery = 100\n");
  auto job = train(config, "run", {"parallel.sync=server", "server.staleness=4"}).start();
  for (int times = 1; times <= 2; ++times) {
    await(job, "validation after step", 2 * times);
    kill_process(job, "worker", 0);
    await(job, "rank 0 was killed by signal 9 (SIGKILL); the job goes on.", times);
  }
  const CommandResult result = job.wait(120);
  EXPECT_EQ(result.code, 0) << result.out << result.err;
  EXPECT_EQ(result.left_behind, 0);
  EXPECT_EQ(times(result.err, "go back to step"), 0) << result.err;
  EXPECT_EQ(times(result.out, "validation after step 0:"), 1) << result.out;
  EXPECT_EQ(times(result.out, "goes back"), 0) << result.out;
  EXPECT_THAT(read_file(folder_.file("run/checkpoint/latest")), HasSubstr("1500"));
  const observe::History history = observe::read_history(folder_.file("run/events.jsonl"));
  EXPECT_EQ(history.validation.front().first, 0);
  EXPECT_EQ(history.validation.back().first, 1500);
  EXPECT_LT(history.validation.back().second, history.validation.front().second);
}

// Rank 0 has saved, so what the other workers would still do would be lost.
TEST_F(FailOver, WorkersThatTrainOnTheirOwnEndWithRankZero) {
  const std::string config = tiny_config(
      folder_,
      "steps = 1000000\nvalidate_every = 20\npatience = 1\nmin_improvement = 1000\nschedule = "
      "\"constant\"\n");
  const std::vector<std::string> alone = {"parallel.sync=server", "server.staleness=-1"};
  const std::string cache = folder_.file("cache");
  const auto job = [&](const std::string& run, std::vector<std::string> settings) {
    settings.insert(settings.end(), alone.begin(), alone.end());
    return train(config, run, settings).with("XDG_CACHE_HOME", cache).run();
  };
  ASSERT_EQ(job("calibrates", {"train.steps=1"}).code, 0);
  believe_calibrations(cache);
  const CommandResult result = job("run", {});
  EXPECT_EQ(result.code, 0) << result.out << result.err;
  EXPECT_EQ(result.left_behind, 0);
  EXPECT_THAT(result.out, HasSubstr("stopped early after step"));
  EXPECT_EQ(result.err, "");
}

// Each worker has a number, and pushes under it. At the end a signal to one of them stops all.
struct ChangingWorkers : FailOver {
  void come_and_go(std::vector<std::string> settings) {
    const std::string config =
        tiny_config(folder_, "steps = 1000000\nvalidate_every = 50\nschedule = \"constant\"\n");
    settings.insert(settings.end(), {"parallel.sync=server", "server.staleness=-1", "elastic.min=1",
                                     "elastic.max=4"});
    auto job = train(config, "run", settings).start();
    ASSERT_NO_FATAL_FAILURE(await(job, "validation after step", 2));
    const auto resize = [&](int ranks) { resize_run(folder_, ranks); };
    resize(4);
    await(job, "rank 3 joins, as asked: 4 ranks.", 1);
    await_pushes(job, 3);
    resize(1);
    await(job, "rank 1 has left, as asked: 1 rank.", 1);
    for (int i = 0; i < 2; ++i) await_pushes(job, 0, pushes_of(0));  // events of after that
    const std::int64_t before = pushes_of(1);
    resize(9);
    await(job, "cannot go on with 9 ranks: elastic allows 1 to 4; the job keeps 1 rank.", 1);
    resize(2);
    await(job, "rank 1 joins, as asked: 2 ranks.", 1);
    await_pushes(job, 1, before);  // by the new one
    signal_process(job, "worker", 1, SIGTERM);
    const CommandResult result = job.wait(120);
    EXPECT_EQ(result.code, 143) << result.out << result.err;
    EXPECT_EQ(result.left_behind, 0);
    EXPECT_THAT(result.out, HasSubstr("checkpoint written to"));
    const nlohmann::json figures = last_servers_event();
    std::int64_t pushes = 0;
    for (const auto& one : figures.at("pushes")) pushes += one.get<std::int64_t>();
    EXPECT_EQ(pushes, figures.at("updates"));
    EXPECT_EQ(figures.at("pushes").size(), 4u);
  }
};

// One that was given up can still be replaced by another.
TEST_F(ChangingWorkers, AreAddedAfterOneWasGivenUp) {
  const std::string config =
      tiny_config(folder_, "steps = 1000000\nvalidate_every = 50\nschedule = \"constant\"\n");
  auto job = train(config, "run",
                   {"parallel.sync=server", "server.staleness=-1", "elastic.min=1", "elastic.max=2",
                    "elastic.restarts=0"})
                 .start();
  ASSERT_NO_FATAL_FAILURE(await(job, "validation after step", 2));
  kill_process(job, "worker", 1);
  await(job, "the job goes on without it, after 0 restarts of processes.", 1);
  resize_run(folder_, 2);
  await(job, "rank 1 joins, as asked: 2 ranks.", 1);
  await_pushes(job, 1, pushes_of(1));
  signal_process(job, "worker", 0, SIGTERM);
  const CommandResult result = job.wait(120);
  EXPECT_EQ(result.code, 143) << result.out << result.err;
  EXPECT_EQ(result.left_behind, 0);
}

TEST_F(FailOver, AWorkerOnItsOwnIsNotStartedAgainIfTheJobSaysSo) {
  const std::string config =
      tiny_config(folder_, "steps = 1000000\nvalidate_every = 50\nschedule = \"constant\"\n");
  auto job =
      train(config, "run", {"parallel.sync=server", "server.staleness=-1", "elastic.restarts=0"})
          .start();
  ASSERT_TRUE(job.wait_for("validation after step")) << job.output();
  kill_process(job, "worker", 1);
  EXPECT_TRUE(job.wait_for("goes on without it, after 0 restarts of processes.")) << job.output();
  signal_process(job, "worker", 0, SIGTERM);
  EXPECT_EQ(job.wait(120).code, 143);
}

// Else the two that are left would wait for a third without end.
TEST_F(FailOver, AJobThatLosesMoreWorkersThanItHasInReserveEnds) {
  const std::string config =
      tiny_config(folder_, "steps = 1000000\nvalidate_every = 50\nschedule = \"constant\"\n");
  auto job = trireme_command({"train", config, "--ranks", "4", "--out", "run", "--set",
                              "parallel.sync=server", "--set", "server.backup=1", "--set",
                              "elastic.restarts=0"})
                 .in(folder_.path())
                 .start();
  ASSERT_NO_FATAL_FAILURE(await(job, "validation after step", 1));
  kill_process(job, "worker", 3);
  ASSERT_NO_FATAL_FAILURE(await(job, "the job goes on without it", 1));
  const int validations = times(job.output(), "validation after step");
  ASSERT_NO_FATAL_FAILURE(await(job, "validation after step", validations + 2));
  kill_process(job, "worker", 2);
  const CommandResult result = job.wait(120);
  EXPECT_EQ(result.code, 128 + SIGKILL) << result.out << result.err;
  EXPECT_THAT(result.err, HasSubstr("rank 2 on host"));
  EXPECT_EQ(result.left_behind, 0);
}

TEST_F(ChangingWorkers, PushUnderTheirNumbers) { come_and_go({}); }
TEST_F(ChangingWorkers, TellACoordinatorOfItsOwn) {
  come_and_go({"rendezvous.store=" + folder_.path()});
}

TEST_F(FailOver, AJobWithoutReplicasGoesBackToItsCheckpoint) {
  const std::string config = tiny_config(
      folder_,
      "steps = 1500\nvalidate_every = 0\nschedule = \"constant\"\n[checkpoint]\nevery = 100\n");
  auto job = train(config, "served", {"parallel.sync=server", "server.count=2"}).start();
  ASSERT_TRUE(job.wait_for("expected time")) << job.output();
  ASSERT_TRUE(eventually([&] {
    return !read_file(folder_.file("served/checkpoint/latest")).empty();
  })) << job.output();
  kill_process(job, "server", 1);
  const CommandResult result = job.wait(120);
  EXPECT_EQ(result.code, 0) << result.out << result.err;
  EXPECT_EQ(result.left_behind, 0);
  EXPECT_THAT(result.err, HasSubstr("server 1 on host"));
  EXPECT_THAT(result.err, HasSubstr("All servers and ranks go back to step "));
  EXPECT_LE(times(result.err, "server 1 on host"), 3) << "once each by two ranks and the launcher\n"
                                                      << result.err;
  EXPECT_THAT(result.out, HasSubstr("continuing after step"));
  EXPECT_EQ(hash("served"), undisturbed_hash(1500));
}

TEST_F(FailOver, ReplicasThatDoNotFitAreRefused) {
  const std::string config = tiny_config(folder_, "steps = 3\n");
  const auto refusal = [&](const std::vector<std::string>& settings) {
    const CommandResult result = train(config, "refused", settings).run();
    EXPECT_EQ(result.code, 2) << result.out << result.err;
    return result.err;
  };
  EXPECT_THAT(refusal({"parallel.sync=server", "server.count=2", "server.replicas=3"}),
              HasSubstr("server.replicas = 3, but the job has 2 servers"));
  EXPECT_THAT(refusal({"parallel.sync=server", "server.replicas=0"}), HasSubstr("server.replicas"));
  EXPECT_THAT(refusal({"server.replicas=2", "server.count=2"}), HasSubstr("parallel.sync"));
}

TEST_F(FailOver, NumbersOfWorkersThatDoNotFitAreRefused) {
  const std::string config = tiny_config(folder_, "steps = 3\n");
  const auto refusal = [&](std::vector<std::string> settings) {
    settings.insert(settings.begin(), "parallel.sync=server");
    const CommandResult result = train(config, "refused", settings).run();
    EXPECT_EQ(result.code, 2) << result.out << result.err;
    return result.err;
  };
  EXPECT_THAT(refusal({"elastic.min=1", "server.backup=1"}), HasSubstr("a fixed number"));
  EXPECT_THAT(refusal({"elastic.min=1", "elastic.max=1", "server.staleness=-1"}),
              HasSubstr("2 workers, but the job is to have 1 to 1"));
  EXPECT_THAT(refusal({"elastic.min=3", "elastic.max=4", "server.staleness=-1"}),
              HasSubstr("2 workers, but the job is to have 3 to 4"));
  EXPECT_THAT(refusal({"elastic.spares=1", "server.staleness=-1"}), HasSubstr("elastic.spares"));
}

}  // namespace
}  // namespace trireme::testing
