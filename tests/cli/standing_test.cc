// `trireme coordinator` and trainings whose processes others start, here the test: coordinators, stores and
// processes that are killed.
#include <gmock/gmock.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <thread>

#include "tests/cli/standing.h"
#include "trireme/base/error.h"

namespace trireme::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST_F(Standing, ACoordinatorWithoutAStoreIsStoppedBeforeItsJobHasBegun) {
  Running waits = trireme_command({"coordinator", "--elastic", "1:1", "--listen", endpoint_})
                      .with("TRIREME_JOB_SECRET_FILE", secret_)
                      .start();
  ASSERT_TRUE(waits.wait_for("waits for")) << waits.output();
  waits.send(SIGTERM);
  EXPECT_EQ(end_of(waits).code, 143) << waits.output();
}

TEST_F(Standing, AJobOutlivesItsCoordinatorsAndRanks) {
  std::vector<std::unique_ptr<Running>> coordinators, all;
  coordinators.push_back(started(coordinator("1:3")));
  for (int number = 0; number < 3; ++number) all.push_back(started(process(number, 3)));
  Running &zero = *all[0], &one = *all[1], &two = *all[2];
  ASSERT_TRUE(coordinators.back()->wait_for("the job begins with 3 ranks"));
  await_steps(50);
  coordinators.back()->send(SIGKILL);
  ASSERT_TRUE(zero.wait_for("the coordinator at " + endpoint_ + " is gone")) << zero.output();
  const std::size_t before = step_seconds("run").size();
  await_steps(before + 50);  // without a coordinator
  coordinators.push_back(started(coordinator("1:3")));
  ASSERT_TRUE(coordinators.back()->wait_for("goes on with the job"))
      << coordinators.back()->output();
  ASSERT_TRUE(zero.wait_for("the coordinator is back")) << zero.output();
  one.send(SIGKILL);
  ASSERT_TRUE(coordinators.back()->wait_for("the job goes on with 2 ranks"));

  // A rank and the coordinator at once: nobody can tell the others until it is back. The other rank comes
  // back late, but while the coordinator still waits.
  coordinators.back()->send(SIGKILL);
  two.send(SIGKILL);
  zero.send(SIGSTOP);
  coordinators.push_back(started(coordinator("1:3")));
  ASSERT_TRUE(coordinators.back()->wait_for("goes on with the job"))
      << coordinators.back()->output();
  std::this_thread::sleep_for(std::chrono::milliseconds(4500));  // of the 6 s of --silence
  zero.send(SIGCONT);
  ASSERT_TRUE(coordinators.back()->wait_for("rank 2 has not come back to the coordinator"))
      << coordinators.back()->output();
  all.push_back(started(process(1, 3)));
  ASSERT_TRUE(coordinators.back()->wait_for("process 1 has come; the job goes on with 2 ranks"));
  const CommandResult result = end_of(*coordinators.back());
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("the job has ended"));
  EXPECT_EQ(end_of(zero).code, 0) << zero.output();
  EXPECT_EQ(end_of(*all.back()).code, 0) << all.back()->output();
  EXPECT_FALSE(std::filesystem::exists(store_ + "/coordinator.state"));
  expect_undisturbed();
}

// It has prepared the run's folder, in which the others go on meanwhile. train.max_time goes on from the job's start.
TEST_F(Standing, ProcessZeroIsStartedAgainBeforeThereIsACheckpoint) {
  const auto job_began = [this] {  // seconds, as the file for the other processes has it
    std::ifstream file(folder_.file("run/worker_spec"));
    std::string word;
    for (int i = 0; i < 14; ++i) file >> word;
    return std::stod(word) / 1e9;
  };
  const std::vector<std::string> none = {"--set", "checkpoint.every=0"};
  Running job = coordinator("1:2").start();
  Running zero = process(0, 2, none).start(), one = process(1, 2).start();
  await_steps(50);
  const double began = job_began();
  zero.send(SIGKILL);
  ASSERT_TRUE(job.wait_for("the job goes on with 1 rank")) << job.output();
  Running again = process(0, 2, none).start();
  ASSERT_TRUE(job.wait_for("process 0 has come; the job goes on with 2 ranks")) << job.output();
  EXPECT_NEAR(job_began(), began, 0.1);
  expect_done({&again, &one, &job});
}

// Process 0 has taken its last step, and cannot save it until a file is out of the way.
TEST_F(Standing, AProcessThatComesAfterTheLastStepEndsWithTheOthers) {
  const std::vector<std::string> few = {"--set", "train.steps=1000", "--set", "checkpoint.every=0"};
  Running job = coordinator("1:2", {"--gather", "0"}).start();
  const std::string checkpoints = folder_.file("run/checkpoint");
  Running zero = process(0, 2, few).start();
  ASSERT_TRUE(job.wait_for("the job begins with 1 rank")) << job.output();
  std::filesystem::remove_all(checkpoints);
  std::ofstream(checkpoints) << "no folder";
  ASSERT_TRUE(zero.wait_for("is not saved")) << zero.output();
  Running one = process(1, 2).start();
  ASSERT_TRUE(job.wait_for("process 1 has come; the job goes on with 2 ranks")) << job.output();
  std::filesystem::remove(checkpoints);
  for (Running* process : {&zero, &one, &job})
    EXPECT_EQ(end_of(*process).code, 0) << process->output();
}

// Process 0 is killed while it cannot save the last step. The other one hears of it when it can.
TEST_F(Standing, TheLastStepIsSavedAfterTheLossOfTheProcessThatWasSavingIt) {
  const std::vector<std::string> few = {"--set", "train.steps=1000", "--set", "checkpoint.every=0"};
  Running job = coordinator("1:2", {"--silence", "60"}).start();
  const std::string checkpoints = folder_.file("run/checkpoint");
  Running zero = process(0, 2, few).start(), one = process(1, 2).start();
  ASSERT_TRUE(job.wait_for("the job begins with 2 ranks")) << job.output();
  std::filesystem::remove_all(checkpoints);
  std::ofstream(checkpoints) << "no folder";
  ASSERT_TRUE(zero.wait_for("is not saved")) << zero.output();
  one.send(SIGSTOP);
  zero.send(SIGKILL);
  EXPECT_EQ(end_of(zero).code, 128 + SIGKILL) << zero.output();
  std::filesystem::remove(checkpoints);
  one.send(SIGCONT);
  ASSERT_TRUE(job.wait_for("the job goes on with 1 rank")) << job.output();
  for (Running* process : {&one, &job}) EXPECT_EQ(end_of(*process).code, 0) << process->output();
  EXPECT_TRUE(std::filesystem::exists(checkpoints + "/step-00001000/manifest.json"))
      << one.output();
}

// It was killed just before the end.
TEST_F(Standing, AProcessThatIsStartedAgainAfterTheEndHasNothingToDo) {
  const std::vector<std::string> few = {"--set", "train.steps=5", "--set", "timeout=2"};
  Running job = coordinator("1:1").start();
  Running zero = process(0, 1, few).start();
  EXPECT_EQ(end_of(zero).code, 0) << zero.output();
  EXPECT_EQ(end_of(job).code, 0) << job.output();
  for (const int number : {0, 1}) {
    const CommandResult late = process(number, 2, number == 0 ? few : std::vector<std::string>())
                                   .start()
                                   .wait_beside_others();
    EXPECT_EQ(late.code, 0) << late.err;
    EXPECT_THAT(late.err, HasSubstr("nothing is left to do"));
  }
}

TEST_F(Standing, AProcessThatWasTakenForLostEndsAndTheOthersGoOn) {
  Running job = coordinator("1:2", {"--silence", "1"}).start();
  Running zero = process(0, 2).start(), one = process(1, 2, {}).start();
  await_steps(20);
  one.send(SIGSTOP);
  ASSERT_TRUE(job.wait_for("rank 1 has sent no heartbeat")) << job.output();
  one.send(SIGCONT);
  const CommandResult lost = end_of(one);
  EXPECT_GE(lost.code, 160) << lost.err;
  EXPECT_THAT(lost.err, HasSubstr("the job has gone on without this process"));
  EXPECT_EQ(end_of(zero).code, 0) << zero.output();
  EXPECT_EQ(end_of(job).code, 0);
}

// Process 1 comes first, and takes the steps of the new command, not those of the one before.
TEST_F(Standing, AJobThatIsStartedAgainWithMoreStepsHasThemOnAllRanks) {
  for (const char* steps : {"train.steps=5", "train.steps=9"}) {
    Running job = coordinator("2:2").start();
    Running one = process(1, 2).start();
    ASSERT_TRUE(one.wait_for("waits for process 0")) << one.output();
    Running zero = process(0, 2, {"--set", steps}).start();
    for (Running* process : {&zero, &one, &job})
      EXPECT_EQ(end_of(*process).code, 0) << process->output();
  }
  EXPECT_EQ(step_seconds("run").size(), 9u);
}

// The file that process 0 had written for the others then is still there.
TEST_F(Standing, AJobThatWasKilledIsStartedAgainWithOtherStepsOnAllRanks) {
  {
    Running job = coordinator("2:2").start();
    Running one = process(1, 2).start();
    Running zero = process(0, 2, {"--set", "checkpoint.every=0"}).start();
    await_steps(5);
    for (Running* process : {&job, &zero, &one}) process->send(SIGKILL);
    for (Running* process : {&job, &zero, &one}) EXPECT_EQ(end_of(*process).code, 137);
  }
  std::filesystem::remove(store_ + "/coordinator.state");
  Running job = coordinator("2:2").start();
  Running one = process(1, 2).start();
  ASSERT_TRUE(one.wait_for("waits for process 0")) << one.output();
  Running zero = process(0, 2, {"--set", "checkpoint.every=0", "--set", "train.steps=9"}).start();
  for (Running* process : {&zero, &one, &job})
    EXPECT_EQ(end_of(*process).code, 0) << process->output();
}

TEST_F(Standing, AJobThatHasBegunGoesOnWithoutProcess0WhenAllOthersHaveEnded) {
  Running job = coordinator("1:3").start();
  Running zero = process(0, 3).start(), one = process(1, 3).start(), two = process(2, 3).start();
  ASSERT_TRUE(job.wait_for("the job begins with 3 ranks", 120)) << job.output();
  await_steps(50);
  for (Running* process : {&zero, &one, &two}) process->send(SIGKILL);
  for (Running* process : {&zero, &one, &two}) EXPECT_EQ(end_of(*process).code, 128 + SIGKILL);
  Running again = process(1, 3).with("TRIREME_TIMEOUT", "5").start();
  Running other = process(2, 3).start();
  ASSERT_TRUE(again.wait_for(
      "process 0 has not come for 5 s; the job has begun, and goes on with what is in run", 120))
      << again.output();
  ASSERT_TRUE(job.wait_for("the job goes on with 2 ranks", 120)) << job.output();
  expect_done({&again, &other, &job});
}

TEST_F(Standing, AProcessDoesNotWaitForProcess0LongerThanTheCoordinatorDoes) {
  Running job = coordinator("1:2", {"--patience", "5"}).start();
  Running one = process(1, 2).with("TRIREME_TIMEOUT", "1").start();
  const CommandResult ended = end_of(job);
  EXPECT_THAT(ended.err, HasSubstr("for 5 s there were fewer than 1 process"));
  const CommandResult waited = end_of(one);
  EXPECT_EQ(waited.code, static_cast<int>(ExitCode::Timeout)) << waited.err;
  EXPECT_THAT(waited.err, HasSubstr("process 0 has not prepared run, and the coordinator at " +
                                    endpoint_ + " is gone"));
}

TEST_F(Standing, AProcessWaitsForProcess0AsLongAsItIsTold) {
  const CommandResult waited =
      process(1, 2).with("TRIREME_TIMEOUT_USER_CODE", "1").start().wait_beside_others();
  EXPECT_EQ(waited.code, static_cast<int>(ExitCode::Timeout)) << waited.err;
  EXPECT_THAT(waited.err, HasSubstr("process 0 has not prepared run"));
}

TEST_F(Standing, StopsWithACheckpointWhenItIsAsked) {
  for (const bool coordinator_asked : {true, false}) {
    Running job = coordinator("1:2").start();
    Running zero = process(0, 2).start(), one = process(1, 2).start();
    await_steps(coordinator_asked ? 20 : 200);
    coordinator_asked ? job.send(SIGUSR1) : one.send(SIGTERM);
    for (Running* process : {&zero, &one}) EXPECT_EQ(end_of(*process).code, 143);
    EXPECT_EQ(end_of(job).code, 143) << job.output();
    EXPECT_FALSE(std::filesystem::exists(store_ + "/coordinator.state"));
  }
  Running job = coordinator("1:2").start();  // the same commands go on
  Running zero = process(0, 2).start(), one = process(1, 2).start();
  expect_done({&zero, &one, &job});
}

TEST_F(Standing, RefusesWhatDoesNotBelongToTheJobAndGoesOn) {
  Running job = coordinator("1:3", {"--gather", "0"}).start();
  Running zero = process(0, 3).start();
  await_steps(20);
  const CommandResult second = coordinator("1:3").start().wait_beside_others();
  EXPECT_EQ(second.code, 2) << "one store has one coordinator";
  EXPECT_THAT(second.err, HasSubstr("in use"));
  Running one = process(1, 3).start();
  ASSERT_TRUE(job.wait_for("process 1 has come")) << job.output();
  const CommandResult twin = process(1, 3).start().wait_beside_others();
  EXPECT_EQ(twin.code, 10) << twin.err;
  EXPECT_THAT(twin.err, HasSubstr("rank 1 has joined already"));
  Command other = process(2, 3);
  const std::string wrong = folder_.write("wrong", std::string(64, 'w'));
  ASSERT_EQ(::chmod(wrong.c_str(), 0600), 0);
  const CommandResult stranger =
      other.with("TRIREME_JOB_SECRET_FILE", wrong).start().wait_beside_others();
  EXPECT_EQ(stranger.code, 11) << stranger.err;
  expect_done({&zero, &one, &job});
}

TEST_F(Standing, GivesUpIfTooFewCome) {
  Running job = coordinator("2:3", {"--patience", "2"}).start();
  Running zero = process(0, 3).start();
  const CommandResult result = end_of(job);
  EXPECT_EQ(result.code, 161) << result.err;
  EXPECT_THAT(result.err, HasSubstr("fewer than 2 processes"));
  EXPECT_GE(end_of(zero).code, 160) << zero.output();
}

TEST_F(Standing, SaysWhatIsWrongBeforeItBegins) {
  const auto refused = [&](Command command, const std::string& part) {
    const CommandResult result = command.run();
    EXPECT_EQ(result.code, 2) << result.err;
    EXPECT_THAT(result.err, HasSubstr(part));
  };
  refused(coordinator("3:2"), "smaller number first");
  refused(coordinator("1:2", {"--multiple", "2"}), "multiples of 2");
  refused(coordinator("1:2", {"--servers", "-1"}), "--servers");
  refused(coordinator("1:2").with("TRIREME_JOB_SECRET_FILE", ""), "the job has no secret");
  refused(trireme_command({"coordinator", "--elastic", "1:2", "--listen", "29400"})
              .with("TRIREME_JOB_SECRET_FILE", secret_),
          "no HOST:PORT");
  store_ = "/no/such/folder";
  refused(coordinator("1:2"), "is no folder");
  store_ = "etcd://127.0.0.1";
  refused(coordinator("1:2"), "names no host and port");
  const auto process_with = [&](std::vector<std::string> words) {
    words.insert(words.begin(), {"train", config_});
    return trireme_command(words)
        .with("TRIREME_COORDINATOR", endpoint_)
        .with("TRIREME_ELASTIC", "1")
        .with("TRIREME_SIZE", "2")
        .with("TRIREME_RANK", "1");
  };
  refused(process_with({}), "--out, in all processes");
  refused(process_with({"--out", "run", "--resume", "other"}), "--resume other under a");
  refused(process_with({"--out", "run", "-H", "localhost:2"}), "-H or --hostfile under a");
}

#ifdef TRIREME_ETCD
TEST_F(Standing, KeepsItsStateInEtcdWhichMayBeAwayForAWhile) {
  Etcd etcd(folder_);
  store_ = "etcd://" + etcd.address() + "/jobs/gpt";
  std::vector<std::unique_ptr<Running>> coordinators, all;
  coordinators.push_back(started(coordinator("1:3", {"--silence", "15"})));
  for (int number = 0; number < 3; ++number) all.push_back(started(process(number, 3)));
  Running &zero = *all[0], &one = *all[1], &two = *all[2];
  ASSERT_TRUE(coordinators.back()->wait_for("the job begins with 3 ranks"))
      << coordinators.back()->output();
  await_steps(50);
  // The ranks cannot change while nobody could remember it.
  etcd.kill();
  one.send(SIGKILL);
  ASSERT_TRUE(coordinators.back()->wait_for("does not answer")) << coordinators.back()->output();
  EXPECT_THAT(coordinators.back()->output(), Not(HasSubstr("goes on with 2 ranks")));
  etcd.start();
  ASSERT_TRUE(coordinators.back()->wait_for("the job goes on with 2 ranks"))
      << coordinators.back()->output();
  await_steps(step_seconds("run").size() + 20);
  coordinators.back()->send(SIGKILL);
  etcd.kill();
  etcd.start();
  coordinators.push_back(started(coordinator("1:3", {"--silence", "15"})));
  ASSERT_TRUE(coordinators.back()->wait_for("goes on with the job"))
      << coordinators.back()->output();

  // Another one takes over; the one before it ends at its next change.
  const std::string before = std::exchange(endpoint_, "127.0.0.1:" + std::to_string(free_port()));
  Running usurper = coordinator("1:3", {"--silence", "15"}).start();
  ASSERT_TRUE(usurper.wait_for("goes on with the job")) << usurper.output();
  endpoint_ = before;
  two.send(SIGKILL);
  const CommandResult deposed = end_of(*coordinators.back());
  EXPECT_EQ(deposed.code, 10) << deposed.err;
  EXPECT_THAT(deposed.err, HasSubstr("another coordinator has taken"));
  usurper.send(SIGKILL);
  coordinators.push_back(started(coordinator("1:3", {"--silence", "15"})));
  const CommandResult result = end_of(*coordinators.back());
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(end_of(zero).code, 0) << zero.output();
  expect_undisturbed();
}
#endif

}  // namespace
}  // namespace trireme::testing
