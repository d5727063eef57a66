// Runs that are stopped, killed, out of disk space or damaged, and what they leave behind.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "tests/cli/command.h"

namespace trireme::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Not;

class Interrupted : public ::testing::Test {
 protected:
  CommandResult trireme(std::vector<std::string> arguments) const {
    return trireme_command(std::move(arguments)).in(folder_.path()).run();
  }
  std::string hash(const std::string& run) const { return hash_of_run(folder_.file(run)); }
  std::string newest(const std::string& run, const std::string& file) const {
    std::string latest = read_file(folder_.file(run + "/checkpoint/latest"));
    while (!latest.empty() && latest.back() == '\n') latest.pop_back();
    return folder_.file(run + "/checkpoint/" + latest + "/" + file);
  }
  // Starts `long_` on `ranks` ranks with `more` and calls `stop`, if given, once it trains. Returns
  // its output at the end.
  using Stop = std::function<void(Command::Running& running)>;
  std::string expect_stopped_and_resumed(int code, const Stop& stop, int ranks = 2,
                                         const std::vector<std::string>& more = {});
  static void send(const Command::Running& running, int rank, int signal);
  static pid_t rank_of(const Command::Running& running, int rank);
  // Kills it once the run has a checkpoint; the others must end at once.
  void kill_rank_1(Command::Running& running, const std::string& run = "run");

  Folder folder_;
  const std::string long_ =
      tiny_config(folder_, "steps = 100000\nvalidate_every = 0\nschedule = \"constant\"\n");
};

pid_t Interrupted::rank_of(const Command::Running& running, int rank) {
  for (const pid_t child : descendants(running.pid()))
    if (environment_of(child, "TRIREME_RANK") == std::to_string(rank)) return child;
  ADD_FAILURE() << "no rank " << rank << " among the launcher's processes";
  return 0;
}

void Interrupted::send(const Command::Running& running, int rank, int signal) {
  if (const pid_t pid = rank_of(running, rank); pid > 0) kill(pid, signal);
}

std::string Interrupted::expect_stopped_and_resumed(int code, const Stop& stop, int ranks,
                                                    const std::vector<std::string>& more) {
  for (const char* name : {"run", "whole"}) fs::remove_all(folder_.file(name));
  const std::string count = std::to_string(ranks);
  std::vector<std::string> train = {"train", long_, "--ranks", count, "--out", "run"};
  train.insert(train.end(), more.begin(), more.end());
  auto running = trireme_command(train).in(folder_.path()).start();
  if (stop) {
    EXPECT_TRUE(running.wait_for("expected time")) << running.output();
    stop(running);
  }
  const CommandResult stopped = running.wait(60);
  EXPECT_EQ(stopped.code, code) << stopped.out << stopped.err;
  EXPECT_EQ(stopped.left_behind, 0);
  EXPECT_THAT(stopped.out, HasSubstr("checkpoint written"));
  EXPECT_THAT(stopped.out, HasSubstr("train --resume run"));
  const auto at = stopped.out.find("after step ", stopped.out.find("stopped by")) + 11;
  std::string digits;
  for (const char c : stopped.out.substr(at, stopped.out.find(';', at) - at)) {
    if (c != ',') digits += c;
  }
  const long done = std::atol(digits.c_str());
  const std::string end = "train.steps=" + std::to_string(done + 7);
  const CommandResult resumed = trireme(
      {"train", "--resume", "run", "--ranks", count, "--set", end, "--set", "train.max_time="});
  EXPECT_EQ(resumed.code, 0) << resumed.out << resumed.err;
  EXPECT_THAT(resumed.out, HasSubstr("continuing after step"));
  const CommandResult whole = trireme({"train", long_, "--out", "whole", "--set", end});
  EXPECT_EQ(whole.code, 0) << whole.out << whole.err;
  EXPECT_EQ(hash("run"), hash("whole"));
  return stopped.out;
}

void Interrupted::kill_rank_1(Command::Running& running, const std::string& run) {
  ASSERT_TRUE(running.wait_for("expected time")) << running.output();
  while (!fs::exists(folder_.file(run + "/checkpoint/latest"))) {
    ASSERT_FALSE(running.wait_for("error", 0.05)) << running.output();
  }
  const pid_t victim = rank_of(running, 1);
  ASSERT_NE(victim, 0);
  const auto killed = std::chrono::steady_clock::now();
  kill(victim, SIGKILL);
  const CommandResult result = running.wait(20);
  const double took =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - killed).count();
  EXPECT_LT(took, 2.0);
  EXPECT_EQ(result.code, 128 + SIGKILL) << result.out << result.err;
  EXPECT_THAT(result.err, HasSubstr("rank 1"));
  EXPECT_EQ(result.left_behind, 0);
}

TEST_F(Interrupted, ByASignalToTheLauncher) {
  for (const auto& [signal, code] : {std::pair(SIGINT, 130), std::pair(SIGTERM, 143)})
    expect_stopped_and_resumed(code, [one = signal](auto& running) { running.send(one); });
}

// The first validation takes some seconds. The command that is printed then must work as it stands.
TEST_F(Interrupted, BeforeItHasACheckpoint) {
  std::string text;
  for (int i = 0; i < 200'000; ++i) text += "line " + std::to_string(i * 7919 % 1000) + " of it\n";
  auto running =
      trireme_command({"train", long_, "--ranks", "2", "--out", "a run", "--data",
                       folder_.write("long.txt", text), "--set", "train.validate_sequences=20000"})
          .in(folder_.path())
          .start();
  const auto has_ranks = [&] {
    for (const pid_t child : descendants(running.pid()))
      if (environment_of(child, "TRIREME_RANK") == "1") return true;
    return false;
  };
  while (!has_ranks()) ASSERT_FALSE(running.wait_for("error", 0.05)) << running.output();
  running.send(SIGINT);
  const CommandResult stopped = running.wait(60);
  EXPECT_EQ(stopped.code, 130) << stopped.out << stopped.err;
  EXPECT_THAT(stopped.out, HasSubstr("no checkpoint was written"));
  EXPECT_THAT(stopped.out, HasSubstr(" train 'a run/config.toml' --out 'a run' --resume auto"));
  const CommandResult again =
      trireme({"train", "a run/config.toml", "--out", "a run", "--resume", "auto", "--set",
               "train.steps=2", "--set", "train.validate_sequences=8"});
  EXPECT_EQ(again.code, 0) << again.out << again.err;
}

// A validation that takes long, in a run that has steps to save.
TEST_F(Interrupted, InAValidation) {
  std::string text;
  for (int i = 0; i < 200'000; ++i) text += "line " + std::to_string(i * 7919 % 1000) + " of it\n";
  const std::string data = folder_.write("long.txt", text);
  auto running =
      trireme_command({"train", long_, "--ranks", "2", "--out", "run", "--data", data, "--set",
                       "train.validate_sequences=20000", "--set", "train.validate_every=5"})
          .in(folder_.path())
          .start();
  const auto has_steps = [&](int steps) {
    const std::string events = read_file(folder_.file("run/events.jsonl"));
    for (std::size_t at = 0; steps > 0; --steps)
      if ((at = events.find("\"step_seconds\"", at + 1)) == events.npos) return false;
    return true;
  };
  ASSERT_TRUE(running.wait_for("expected time")) << running.output();  // after step 3
  while (!has_steps(5)) ASSERT_FALSE(running.wait_for("error", 0.02)) << running.output();
  running.send(SIGINT);
  const CommandResult stopped = running.wait(60);
  EXPECT_EQ(stopped.code, 130) << stopped.out << stopped.err;
  EXPECT_THAT(stopped.out, HasSubstr("stopped by SIGINT after step 5; checkpoint written"));
  EXPECT_THAT(stopped.out, Not(HasSubstr("validation after step 5")));
  // The validation is made when the run is resumed.
  const CommandResult resumed = trireme({"train", "--resume", "run", "--set",
                                         "train.validate_sequences=8", "--set", "train.steps=7"});
  EXPECT_EQ(resumed.code, 0) << resumed.out << resumed.err;
  EXPECT_THAT(resumed.out, HasSubstr("validation after step 5"));
  const CommandResult whole =
      trireme({"train", long_, "--out", "whole", "--data", data, "--set", "train.steps=7"});
  EXPECT_EQ(whole.code, 0) << whole.out << whole.err;
  EXPECT_EQ(hash("run"), hash("whole"));
}

// All steps are done and saved, but the command was asked for this validation, too: whoever starts it again gets it.
TEST_F(Interrupted, InTheLastValidation) {
  std::string text;
  for (int i = 0; i < 200'000; ++i) text += "line " + std::to_string(i * 7919 % 1000) + " of it\n";
  auto running = trireme_command({"train", long_, "--ranks", "2", "--out", "run", "--data",
                                  folder_.write("long.txt", text), "--set", "train.steps=4",
                                  "--set", "train.validate_sequences=20000"})
                     .in(folder_.path())
                     .start();
  ASSERT_TRUE(running.wait_for("expected time", 120)) << running.output();  // after step 3
  const auto steps = [&] {
    std::istringstream events(read_file(folder_.file("run/events.jsonl")));
    int count = 0;
    for (std::string line; std::getline(events, line);)
      count += line.find("\"step_seconds\"") != line.npos;
    return count;
  };
  while (steps() < 4) ASSERT_FALSE(running.wait_for("error", 0.02)) << running.output();
  running.send(SIGTERM);
  const CommandResult stopped = running.wait(60);
  EXPECT_EQ(stopped.code, 143) << stopped.out << stopped.err;
  EXPECT_THAT(stopped.out,
              HasSubstr("stopped by SIGTERM after step 4, the last one, during its validation; "
                        "checkpoint written"));
  EXPECT_THAT(stopped.out, Not(HasSubstr("validation after step 4")));
  const CommandResult resumed =
      trireme({"train", "--resume", "run", "--set", "train.validate_sequences=8"});
  EXPECT_EQ(resumed.code, 0) << resumed.out << resumed.err;
  EXPECT_THAT(resumed.out, HasSubstr("validation after step 4"));
}

// The text is for people to look at: a signal cuts it off, and the training has ended well.
TEST_F(Interrupted, WhileItWritesItsSample) {
  auto running = trireme_command({"train", long_, "--ranks", "2", "--out", "run", "--set",
                                  "train.steps=3", "--set", "train.sample_bytes=1000000"})
                     .in(folder_.path())
                     .start();
  EXPECT_TRUE(running.wait_for("validation after step 3")) << running.output();
  running.send(SIGINT);
  const CommandResult result = running.wait(20);
  EXPECT_EQ(result.code, 0) << result.out << result.err;
  EXPECT_THAT(result.out, HasSubstr("the run is in run"));
}

TEST_F(Interrupted, ByASignalToOneRank) {
  for (const int signal : {SIGUSR1, SIGHUP, SIGTERM})
    expect_stopped_and_resumed(143, [&](auto& running) { send(running, 1, signal); });
}

// As a service manager ends all processes of a unit; the launcher passes the signal on as well.
TEST_F(Interrupted, ByASignalToEveryProcess) {
  expect_stopped_and_resumed(143, [](auto& running) {
    for (int rank = 0; rank < 2; ++rank) send(running, rank, SIGTERM);
    running.send(SIGTERM);
  });
}

TEST_F(Interrupted, ByASignalToTheOnlyProcess) {
  const auto stop = [](auto& running) { running.send(SIGUSR1); };
  EXPECT_THAT(expect_stopped_and_resumed(143, stop, 1), HasSubstr("stopped by SIGUSR1 after step"));
}

TEST_F(Interrupted, ByTheEndOfItsTime) {
  for (const int ranks : {1, 2})
    EXPECT_THAT(expect_stopped_and_resumed(143, {}, ranks, {"--set", "train.max_time=2s"}),
                HasSubstr("stopped by train.max_time after step"));
}

// As by one on another host, after this one has hung for long.
TEST_F(Interrupted, ByAJobThatHasTakenItsFolderOver) {
  auto running = trireme_command({"train", long_, "--ranks", "2", "--out", "run", "--set",
                                  "checkpoint.every=20"})
                     .in(folder_.path())
                     .start();
  ASSERT_TRUE(running.wait_for("expected time", 120)) << running.output();
  std::string lock = read_file(folder_.file("run/.lock"));
  lock.replace(lock.find("since 20"), 8, "since 19");
  fs::rename(folder_.write("next", lock), folder_.file("run/.lock"));
  const CommandResult ended = running.wait(120);
  EXPECT_EQ(ended.code, 2) << ended.out << ended.err;
  EXPECT_EQ(ended.left_behind, 0);
  EXPECT_THAT(ended.err, HasSubstr("run is in use by process "));
  EXPECT_THAT(ended.err, HasSubstr("took it over while this job gave no sign of life"));
  EXPECT_EQ(read_file(folder_.file("run/.lock")), lock);
}

TEST_F(Interrupted, ATimeThatIsNoneIsRefused) {
  const CommandResult result = trireme({"train", long_, "--set", "train.max_time=90"});
  EXPECT_EQ(result.code, 2) << result.out << result.err;
  EXPECT_THAT(result.err, HasSubstr("train.max_time = \"90\" is not a duration"));
}

TEST_F(Interrupted, ResumedRunEqualsTheOneThatWasNotStopped) {
  // Stopped after 20 of 40 steps; only the checkpoint is left.
  const std::string config = tiny_config(folder_, "steps = 40\n");
  const std::string every = "checkpoint.every=20";
  ASSERT_EQ(trireme({"train", config, "--ranks", "2", "--out", "whole", "--set", every}).code, 0);
  for (const char* ranks : {"2", "1", "3"}) {
    const std::string run = std::string("part-") + ranks;
    fs::copy(folder_.file("whole"), folder_.file(run), fs::copy_options::recursive);
    fs::remove_all(folder_.file(run + "/checkpoint/step-00000040"));
    std::ofstream(folder_.file(run + "/checkpoint/latest")) << "step-00000020\n";
    EXPECT_NE(hash(run), hash("whole"));
    const CommandResult resumed = trireme({"train", "--resume", run, "--ranks", ranks});
    EXPECT_EQ(resumed.code, 0) << resumed.out << resumed.err;
    EXPECT_THAT(resumed.out, HasSubstr("continuing after step 20"));
    EXPECT_EQ(hash(run), hash("whole")) << ranks << " ranks";
  }
}

// Saved under zero3 on three ranks, which hold shards of everything; resumed under every other.
TEST_F(Interrupted, EverySyncResumesWhatAnotherSaved) {
  const std::string config = tiny_config(folder_, "steps = 40\n");
  const std::vector<std::string> train = {"train", config, "--set", "checkpoint.every=20"};
  const auto with = [](std::vector<std::string> arguments, const std::vector<std::string>& more) {
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  };
  ASSERT_EQ(trireme(with(train, {"--out", "plain"})).code, 0);
  const CommandResult saved =
      trireme(with(train, {"--out", "whole", "--ranks", "3", "--set", "parallel.sync=zero3"}));
  ASSERT_EQ(saved.code, 0) << saved.out << saved.err;
  EXPECT_THAT(saved.out, HasSubstr("ZeRO-3"));
  EXPECT_EQ(hash("whole"), hash("plain"));
  const std::vector<std::vector<std::string>> layouts = {
      {"plain", "1", "0"}, {"zero1", "2", "0"}, {"zero2", "3", "0"}, {"hybrid", "4", "2"}};
  for (const auto& layout : layouts) {
    const std::string run = "part-" + layout[0];
    fs::copy(folder_.file("whole"), folder_.file(run), fs::copy_options::recursive);
    fs::remove_all(folder_.file(run + "/checkpoint/step-00000040"));
    std::ofstream(folder_.file(run + "/checkpoint/latest")) << "step-00000020\n";
    const CommandResult resumed =
        trireme({"train", "--resume", run, "--ranks", layout[1], "--set",
                 "parallel.sync=" + layout[0], "--set", "parallel.shard=" + layout[2]});
    EXPECT_EQ(resumed.code, 0) << resumed.out << resumed.err;
    EXPECT_THAT(resumed.out, HasSubstr("continuing after step 20"));
    EXPECT_EQ(hash(run), hash("plain")) << layout[0];
  }
}

TEST_F(Interrupted, AutoStartsThenContinues) {
  const std::string config = tiny_config(folder_, "steps = 4\n");
  const std::vector<std::string> train = {"train", config, "--out", "run", "--resume", "auto"};
  const CommandResult first = trireme(train);
  EXPECT_EQ(first.code, 0) << first.out << first.err;
  const std::string before = hash("run");
  const CommandResult second = trireme(train);
  EXPECT_EQ(second.code, 0) << second.out << second.err;
  EXPECT_THAT(second.out, HasSubstr("continuing after step 4"));
  EXPECT_EQ(hash("run"), before);
}

TEST_F(Interrupted, KilledRankIsNamedAndTheCheckpointStays) {
  auto running = trireme_command({"train", long_, "--ranks", "2", "--out", "run", "--set",
                                  "checkpoint.every=5"})
                     .in(folder_.path())
                     .start();
  kill_rank_1(running);
  EXPECT_EQ(trireme({"inspect", "run", "--hash"}).out, hash("run"));
}

TEST_F(Interrupted, AKilledRankOfZeroIsResumedBitForBitOnOtherLayouts) {
  const std::string config = tiny_config(folder_, "steps = 600\nvalidate_every = 0\nclip = 0.5\n");
  ASSERT_EQ(trireme({"train", config, "--out", "whole"}).code, 0);
  for (const char* sync : {"zero2", "zero3"}) {
    const std::string run = std::string("run-") + sync;
    auto running =
        trireme_command({"train", config, "--ranks", "3", "--out", run, "--set",
                         std::string("parallel.sync=") + sync, "--set", "checkpoint.every=10"})
            .in(folder_.path())
            .start();
    kill_rank_1(running, run);
    EXPECT_NE(hash(run), hash("whole"));
    const CommandResult resumed = trireme({"train", "--resume", run, "--ranks", "2", "--set",
                                           "parallel.sync=zero1", "--set", "checkpoint.every=0"});
    EXPECT_EQ(resumed.code, 0) << resumed.out << resumed.err;
    EXPECT_EQ(hash(run), hash("whole")) << sync;
  }
}

TEST_F(Interrupted, FullDiskKeepsTheOldCheckpoint) {
  const std::string config = tiny_config(folder_, "steps = 4\n");
  ASSERT_EQ(trireme({"train", config, "--out", "run"}).code, 0);
  const std::string before = hash("run");
  const CommandResult full = trireme_command({"train", "--resume", "run", "--set", "train.steps=8"})
                                 .in(folder_.path())
                                 .file_limit(16384)
                                 .run();
  EXPECT_GE(full.code, 170) << full.out << full.err;
  EXPECT_LT(full.code, 180);
  EXPECT_EQ(hash("run"), before);
  const CommandResult resumed = trireme({"train", "--resume", "run", "--set", "train.steps=8"});
  EXPECT_EQ(resumed.code, 0) << resumed.out << resumed.err;
  EXPECT_NE(hash("run"), before);
}

// The storage fails when the last step is to be saved, and the timeline has no folder any more.
TEST_F(Interrupted, ATraceThatCannotBeWrittenLeavesTheLastCheckpoint) {
  fs::create_directory(folder_.file("traces"));
  auto running = trireme_command({"train", long_, "--out", "run", "--trace", "traces/t.json",
                                  "--set", "train.steps=1000", "--set", "checkpoint.every=0"})
                     .in(folder_.path())
                     .start();
  ASSERT_TRUE(running.wait_for("expected time")) << running.output();
  const std::string checkpoints = folder_.file("run/checkpoint");
  for (const std::string& one : {folder_.file("traces"), checkpoints}) fs::remove_all(one);
  std::ofstream(checkpoints) << "no folder";
  ASSERT_TRUE(running.wait_for("is not saved")) << running.output();
  fs::remove(checkpoints);
  const CommandResult result = running.wait(60);
  EXPECT_EQ(result.code, 170) << result.out << result.err;
  EXPECT_THAT(result.err, HasSubstr("cannot write traces/t.json"));
  EXPECT_TRUE(fs::exists(checkpoints + "/step-00001000/manifest.json")) << result.err;
}

TEST_F(Interrupted, DamagedCheckpointIsRefused) {
  const std::string config = tiny_config(folder_, "steps = 4\n");
  ASSERT_EQ(trireme({"train", config, "--out", "run"}).code, 0);
  const std::string model = newest("run", "model.safetensors");
  const std::string whole = read_file(model);
  std::string flipped = whole;
  flipped[flipped.size() - 9] ^= 0x10;
  for (const std::string& damaged : {flipped, whole.substr(0, whole.size() - 100)}) {
    std::ofstream(model, std::ios::binary | std::ios::trunc) << damaged;
    for (const std::vector<std::string>& arguments :
         {std::vector<std::string>{"train", "--resume", "run", "--set", "train.steps=8"},
          {"train", "--resume", "run", "--ranks", "2", "--set", "train.steps=8"},
          {"generate", "run"},
          {"eval", "run"},
          {"inspect", "run", "--hash"}}) {
      const CommandResult result = trireme(arguments);
      EXPECT_EQ(result.code, 12) << arguments[0] << "\n" << result.out << result.err;
      EXPECT_THAT(result.err, HasSubstr("model.safetensors"));
    }
  }
}

}  // namespace
}  // namespace trireme::testing
