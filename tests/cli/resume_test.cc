// Runs that are killed and resumed, two jobs on one folder, and resumed runs with changed values;
// real processes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <algorithm>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <set>
#include <span>
#include <sstream>

#include "tests/cli/command.h"
#include "trireme/base/sha256.h"

namespace trireme::testing {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Not;

class Resume : public ::testing::Test {
 protected:
  Command command(std::vector<std::string> arguments) const {
    return trireme_command(std::move(arguments)).in(folder_.path());
  }
  CommandResult trireme(std::vector<std::string> arguments) const {
    return command(std::move(arguments)).run(120);
  }
  std::string hash(const std::string& run) const {
    const CommandResult result = trireme({"inspect", run, "--hash"});
    EXPECT_EQ(result.code, 0) << result.err;
    return result.out;
  }
  std::vector<Json> events(const std::string& run, const std::string& kind) const {
    std::istringstream lines(read_file(folder_.file(run + "/events.jsonl")));
    std::vector<Json> found;
    for (std::string line; std::getline(lines, line);) {
      const Json event = Json::parse(line);
      if (event.at("event") == kind) found.push_back(event);
    }
    return found;
  }
  // Every step is recorded once.
  void expect_whole_history(const std::string& run, long steps) const {
    long step = 0;
    for (const Json& event : events(run, "step")) EXPECT_EQ(event.at("step"), ++step);
    EXPECT_EQ(step, steps);
  }
  std::size_t steps_so_far(const std::string& run) const {
    const std::string text = read_file(folder_.file(run + "/events.jsonl"));
    std::size_t count = 0;
    for (auto at = text.find("\"step\",\"step\""); at != std::string::npos;
         at = text.find("\"step\",\"step\"", at + 1))
      ++count;
    return count;
  }
  static std::string program() { return TRIREME_PROGRAM; }
  // Runs outside of a Command, which counts every other child of this process as left behind.
  int shell(const std::string& line) const {
    const int status = std::system(("cd " + folder_.path() + " || exit 98; " + line).c_str());
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  bool has_checkpoint(const std::string& run) const {
    std::error_code none;
    for (fs::directory_iterator entry(folder_.file(run + "/checkpoint"), none), end;
         !none && entry != end; entry.increment(none))
      if (entry->path().filename().string().starts_with("step-")) return true;
    return false;
  }
  void wait_for_checkpoint(Command::Running& running, const std::string& run) const {
    while (!has_checkpoint(run)) ASSERT_FALSE(running.wait_for("error", 0.02)) << running.output();
  }
  // Copies `whole` (40 steps) without its last checkpoint, as a run that ended after step 20.
  void cut_back(const std::string& run) const {
    fs::remove_all(folder_.file(run));
    fs::copy(folder_.file("whole"), folder_.file(run), fs::copy_options::recursive);
    fs::remove_all(folder_.file(run + "/checkpoint/step-00000040"));
  }
  void train_whole() const {
    const CommandResult whole = trireme({"train", forty_, "--out", "whole"});
    ASSERT_EQ(whole.code, 0) << whole.out << whole.err;
  }

  Folder folder_;
  const std::string forty_ = tiny_config(folder_, "steps = 40\n[checkpoint]\nevery = 20\n");
};

// Killed between the renaming of the first checkpoint and `latest`.
TEST_F(Resume, LatestIsAHint) {
  train_whole();
  for (const std::vector<std::string>& how :
       {std::vector<std::string>{"train", forty_, "--out", "part", "--resume", "auto"},
        {"train", "--resume", "part", "--ranks", "2"}}) {
    cut_back("part");
    fs::remove(folder_.file("part/checkpoint/latest"));
    const CommandResult resumed = trireme(how);
    EXPECT_EQ(resumed.code, 0) << resumed.out << resumed.err;
    EXPECT_THAT(resumed.out, HasSubstr("continuing after step 20"));
    EXPECT_EQ(hash("part"), hash("whole"));
    expect_whole_history("part", 40);
  }
}

// One rank could not run the pipeline.
TEST_F(Resume, TakesAsManyRanksAsBefore) {
  const CommandResult whole =
      trireme({"train", forty_, "--ranks", "2", "--set", "parallel.pipeline=2", "--out", "whole"});
  ASSERT_EQ(whole.code, 0) << whole.out << whole.err;
  EXPECT_TRUE(events("whole", "resumed").empty());
  cut_back("part");
  const auto resume = [&](std::vector<std::string> more, long ranks) {
    more.insert(more.begin(), {"train", "--resume", "part"});
    const CommandResult resumed = trireme(more);
    EXPECT_EQ(resumed.code, 0) << resumed.out << resumed.err;
    EXPECT_EQ(hash("part"), hash("whole"));
    expect_whole_history("part", 40);
    const std::vector<Json> all = events("part", "resumed");
    EXPECT_EQ(all.back().at("step"), 20);
    EXPECT_EQ(all.back().at("ranks"), ranks);
    EXPECT_EQ(all.back().at("servers"), 0);
    EXPECT_EQ(all.back().at("checkpoint"), "part/checkpoint/step-00000020");
    fs::remove_all(folder_.file("part/checkpoint/step-00000040"));
    return resumed.err;
  };
  EXPECT_THAT(resume({}, 2), HasSubstr("resuming with 2 ranks, as before; --ranks changes that\n"));
  EXPECT_THAT(resume({"--ranks", "4"}, 4), Not(HasSubstr("as before")));
  EXPECT_THAT(resume({}, 4), HasSubstr("resuming with 4 ranks, as before"));
  EXPECT_EQ(events("part", "resumed").size(), 3u);
}

// The launcher and its ranks are killed together, as by the machine; nothing but the same command
// follows.
TEST_F(Resume, BackupGoesOnByTheSameCommandAndIsRemovedWhenItIsDone) {
  const std::string long_ = tiny_config(folder_, "steps = 400\n[checkpoint]\nevery = 20\n");
  const std::vector<std::string> train = {"train", long_, "--ranks", "2",
                                          "--out", "run", "--backup"};
  auto running = command(train).start();
  wait_for_checkpoint(running, "run");
  for (const pid_t one : descendants(running.pid())) kill(one, SIGKILL);
  running.send(SIGKILL);
  EXPECT_EQ(running.wait().code, 137);
  ASSERT_TRUE(has_checkpoint("run"));
  const CommandResult done = trireme(train);
  EXPECT_EQ(done.code, 0) << done.out << done.err;
  EXPECT_THAT(done.out,
              AllOf(HasSubstr("continuing after step"),
                    HasSubstr("the backup is removed; the checkpoint of step 400 stays")));
  std::vector<std::string> left;
  for (const auto& entry : fs::directory_iterator(folder_.file("run/checkpoint")))
    left.push_back(entry.path().filename());
  std::sort(left.begin(), left.end());
  EXPECT_EQ(left, (std::vector<std::string>{"latest", "step-00000400"}));
  expect_whole_history("run", 400);
  ASSERT_EQ(trireme({"train", long_, "--out", "alone"}).code, 0);
  EXPECT_EQ(hash("run"), hash("alone"));
  // Once more: there is nothing left to do.
  const CommandResult again = trireme(train);
  EXPECT_EQ(again.code, 0) << again.out << again.err;
  EXPECT_EQ(hash("run"), hash("alone"));
  // Another model is another training.
  const CommandResult other = trireme(
      {"train", long_, "--ranks", "2", "--out", "run", "--backup", "--set", "model.width=64"});
  EXPECT_EQ(other.code, 12) << other.out << other.err;
  EXPECT_THAT(other.err, AllOf(HasSubstr("model.width"), HasSubstr("start another run")));
}

TEST_F(Resume, BackupNeedsAFolderThatTheNextStartFinds) {
  const CommandResult nowhere = trireme({"train", forty_, "--backup"});
  EXPECT_EQ(nowhere.code, 2);
  EXPECT_THAT(nowhere.err, HasSubstr("Add --out DIR."));
  const CommandResult named =
      trireme({"train", forty_, "--out", "run", "--resume", "run", "--backup"});
  EXPECT_EQ(named.code, 2);
  EXPECT_THAT(named.err, HasSubstr("--backup cannot be combined with --resume run"));
}

TEST_F(Resume, AStartThatWasKilledOrHadNoSpaceLeavesAFreeFolder) {
  fs::create_directory(folder_.file("run"));
  folder_.write("run/config.toml.new", "# The resolved conf");
  const std::vector<std::string> train = {"train",         forty_,  "--set",
                                          "train.steps=2", "--out", "run"};
  const CommandResult full = command(train).file_limit(100).run();
  EXPECT_EQ(full.code, 170) << full.out << full.err;
  EXPECT_FALSE(fs::exists(folder_.file("run/config.toml")));
  const CommandResult again = trireme(train);
  EXPECT_EQ(again.code, 0) << again.out << again.err;
  EXPECT_FALSE(fs::exists(folder_.file("run/config.toml.new")));
  EXPECT_FALSE(fs::exists(folder_.file("run/.lock")));
}

TEST_F(Resume, OneJobAtATimeHasARun) {
  auto holder = command({"train", forty_, "--ranks", "2", "--out", "run", "--set",
                         "train.steps=100000", "--set", "checkpoint.every=5"})
                    .start();
  wait_for_checkpoint(holder, "run");
  const std::string us = "process " + std::to_string(holder.pid()) + " on host ";
  for (const char* how :
       {"--resume run", "--resume auto --out run tiny.toml", "--resume run --ranks 2"}) {
    EXPECT_EQ(shell(program() + " train " + how + " > other.txt 2>&1"), 2);
    EXPECT_THAT(read_file(folder_.file("other.txt")),
                AllOf(HasSubstr("run is in use by " + us), HasSubstr("since 20")));
  }
  holder.send(SIGTERM);
  const CommandResult result = holder.wait(60);
  EXPECT_EQ(result.code, 143) << result.out << result.err;
  expect_whole_history("run", static_cast<long>(events("run", "step").size()));
}

// The launcher, or the only process of a one-rank job, is killed again and again.
TEST_F(Resume, AKilledHolderIsResumedAtOnce) {
  const std::vector<std::string> more = {"--set", "train.steps=300",
                                         "--set", "checkpoint.every=10",
                                         "--set", "train.validate_every=0"};
  const auto with = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  };
  ASSERT_EQ(trireme(with({"train", forty_, "--out", "whole"})).code, 0);
  for (const std::string ranks : {"1", "2"}) {
    const std::vector<std::string> train =
        with({"train", forty_, "--out", "run-" + ranks, "--resume", "auto", "--ranks", ranks});
    for (int kill = 0; kill < 3; ++kill) {
      const std::size_t steps = steps_so_far("run-" + ranks);
      auto running = command(train).start();
      while (steps_so_far("run-" + ranks) < steps + 15)
        ASSERT_FALSE(running.wait_for("error", 0.01)) << running.output();
      running.send(SIGKILL);
      // The next one finds the folder as the kill left it, with a lock.
      EXPECT_EQ(running.wait(60).code, 128 + SIGKILL);
      EXPECT_TRUE(fs::exists(folder_.file("run-" + ranks + "/.lock")));
    }
    const CommandResult last = trireme(train);
    EXPECT_EQ(last.code, 0) << last.out << last.err;
    EXPECT_THAT(last.out, HasSubstr("continuing after step"));
    EXPECT_EQ(hash("run-" + ranks), hash("whole"));
    expect_whole_history("run-" + ranks, 300);
    EXPECT_FALSE(fs::exists(folder_.file("run-" + ranks + "/.lock")));
  }
}

// Ranks whose launcher was just killed still hold the folder until the kernel has ended them.
TEST_F(Resume, AKilledLauncherWhoseRanksAreEndingIsWaitedFor) {
  train_whole();
  const std::string train = program() + " train tiny.toml --ranks 2 --resume auto --out run";
  const int code = shell(train +
                         " --set train.steps=100000 > out.1 2>&1 & launcher=$!;"
                         "while ! ls run/checkpoint/step-* > files 2>&1; do "
                         "kill -0 $launcher || exit 99; sleep 0.02; done;"
                         "kill -9 $launcher; " +
                         train + " --set train.steps=100 > out.2 2>&1");
  EXPECT_EQ(code, 0) << read_file(folder_.file("out.1")) << read_file(folder_.file("out.2"));
  EXPECT_THAT(read_file(folder_.file("out.2")), HasSubstr("continuing after step"));
}

TEST_F(Resume, OfManyThatStartAtOnceOneTrains) {
  train_whole();
  const std::string train = program() + " train tiny.toml --resume auto --out run";
  shell("for i in 1 2 3 4; do { " + train + " > out.$i 2>&1; echo $? > code.$i; } & done; wait");
  std::multiset<std::string> codes;
  for (const char* i : {"1", "2", "3", "4"}) {
    codes.insert(read_file(folder_.file(std::string("code.") + i)));
    const std::string out = read_file(folder_.file(std::string("out.") + i));
    // A command that came after the others had ended found a finished run.
    EXPECT_THAT(out, AnyOf(HasSubstr("the run is in run"), HasSubstr("run is in use by"),
                           HasSubstr("Start this command again")));
  }
  EXPECT_GE(codes.count("0\n"), 1u);
  EXPECT_EQ(codes.count("0\n") + codes.count("2\n"), 4u);
  EXPECT_EQ(hash("run"), hash("whole"));
  expect_whole_history("run", 40);
}

// Data, optimizer and schedule decide bits: changes must be asked for and are recorded.
TEST_F(Resume, AChangeIsNamedAndTakenOnPurpose) {
  train_whole();
  cut_back("part");
  std::string other = read_file(folder_.file("data.txt"));
  std::reverse(other.begin(), other.end());
  folder_.write("other.txt", other + "more");
  const std::vector<std::string> resume = {
      "train", "--resume", "part", "--data", "other.txt", "--set", "train.learning_rate=0.002"};
  const CommandResult refused = trireme(resume);
  EXPECT_EQ(refused.code, 12) << refused.out << refused.err;
  EXPECT_THAT(refused.err, AllOf(HasSubstr("data.path = \""), HasSubstr("data.txt\", which is now"),
                                 HasSubstr("other.txt\""),
                                 HasSubstr("train.learning_rate = 0.001, which is now 0.002"),
                                 HasSubstr("--changed data.path --changed train.learning_rate")));
  EXPECT_THAT(trireme({"train", "--resume", "part"}).out, HasSubstr("continuing after step 20"));
  cut_back("part");
  auto with = [&](std::vector<std::string> arguments, const std::vector<std::string>& more) {
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  };
  EXPECT_EQ(trireme(with(resume, {"--changed", "data.path"})).code, 12);
  const CommandResult taken = trireme(
      with(resume, {"--changed", "data.path", "--changed", "train.learning_rate", "--ranks", "2"}));
  ASSERT_EQ(taken.code, 0) << taken.out << taken.err;
  EXPECT_THAT(taken.out, AllOf(HasSubstr("continuing after step 20"),
                               HasSubstr("changed  train.learning_rate = 0.002 (--set)"),
                               HasSubstr("changed  data.path = ")));
  EXPECT_NE(hash("part"), hash("whole"));
  EXPECT_THAT(read_file(folder_.file("part/config.toml")),
              AllOf(HasSubstr("# --set, changed after step 20 (was 0.001)"),
                    HasSubstr("# --data, changed after step 20 (was \"")));
  const auto changes = events("part", "changed");
  ASSERT_EQ(changes.size(), 2u);
  EXPECT_EQ(changes[0].at("step"), 20);
  expect_whole_history("part", 40);
  // The changed values are the run's now: repeating them is no change, going back would be one.
  EXPECT_EQ(trireme({"train", "--resume", "part", "--set", "train.steps=42"}).code, 0);
  EXPECT_EQ(trireme({"train", "--resume", "part", "--set", "train.learning_rate=0.001"}).code, 12);
}

// Checkpoints have all that the next steps depend on.
TEST_F(Resume, CompressedGradientsGoOnWithTheSameBits) {
  const auto train = [&](const std::string& compression) {
    fs::remove_all(folder_.file("whole"));
    const CommandResult whole = trireme({"train", forty_, "--ranks", "2", "--set",
                                         "comm.compression=" + compression, "--out", "whole"});
    ASSERT_EQ(whole.code, 0) << whole.out << whole.err;
    cut_back("part");
  };
  const auto resume = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"train", "--resume", "part"});
    const CommandResult resumed = trireme(more);
    EXPECT_EQ(resumed.code, 0) << resumed.out << resumed.err;
    EXPECT_THAT(resumed.out, HasSubstr("continuing after step 20"));
    return resumed.err;
  };
  for (const char* compression : {"randomk:0.1", "powersgd:2,10", "onebit", "topk:0.1"}) {
    train(compression);
    EXPECT_THAT(resume({}), Not(HasSubstr("had not sent"))) << compression;
    EXPECT_EQ(hash("part"), hash("whole")) << compression;
  }
  const std::string unsent =
      "what 2 ranks had not sent of their gradients (comm.compression = \"topk:0.1\") is ";
  cut_back("part");
  EXPECT_THAT(resume({"--ranks", "3"}), HasSubstr(unsent + "divided among 3 ranks"));
  cut_back("part");
  EXPECT_THAT(resume({"--changed", "comm.compression=none"}), HasSubstr(unsent + "left out"));
  cut_back("part");
  EXPECT_THAT(resume({"--ranks", "1"}), HasSubstr(unsent + "left out"));
}

// Killed after the change was recorded and before the first checkpoint with it.
TEST_F(Resume, AChangeThatWasNotSavedYetIsTakenAgain) {
  train_whole();
  cut_back("part");
  const std::string changed = "train.learning_rate=0.0005";
  ASSERT_EQ(trireme({"train", "--resume", "part", "--changed", changed}).code, 0);
  const std::string wanted = hash("part");
  fs::remove_all(folder_.file("part/checkpoint/step-00000040"));
  const CommandResult again = trireme({"train", "--resume", "part"});
  EXPECT_EQ(again.code, 0) << again.out << again.err;
  EXPECT_EQ(hash("part"), wanted);
}

TEST_F(Resume, DataOfTheSameNameWithOtherContentIsNamed) {
  train_whole();
  cut_back("part");
  folder_.write("data.txt", read_file(folder_.file("data.txt")) + "one more line\n");
  const CommandResult refused = trireme({"train", "--resume", "part"});
  EXPECT_EQ(refused.code, 12) << refused.out << refused.err;
  EXPECT_THAT(refused.err, AllOf(HasSubstr("data.path"), HasSubstr("other content"),
                                 HasSubstr("--changed data.path")));
  const CommandResult taken = trireme({"train", "--resume", "part", "--changed", "data.path"});
  EXPECT_EQ(taken.code, 0) << taken.out << taken.err;
}

TEST_F(Resume, ValuesKeepTheirSources) {
  ASSERT_EQ(trireme({"train", forty_, "--out", "run", "--set", "train.steps=3"}).code, 0);
  const auto line = [&](const std::string& start) {
    const std::string text = read_file(folder_.file("run/config.toml"));
    const auto at = text.find("\n" + start) + 1;
    return text.substr(at, text.find('\n', at) - at);
  };
  const std::string width = line("width = ");
  EXPECT_THAT(width, HasSubstr("# tiny.toml:"));
  EXPECT_THAT(line("steps = 3"), HasSubstr("# --set"));
  ASSERT_EQ(trireme({"train", "--resume", "run", "--set", "train.steps=4"}).code, 0);
  ASSERT_EQ(trireme({"train", "--resume", "run", "--ranks", "2"}).code, 0);
  EXPECT_EQ(line("width = "), width);
  EXPECT_THAT(line("steps = 4"), HasSubstr("# --set"));
  EXPECT_THAT(line("beta1 = "), HasSubstr("# default"));
}

// Matching hashes say who wrote last, not that the content makes sense.
TEST_F(Resume, AManifestThatSaysWhatCannotBeIsRefused) {
  train_whole();
  const auto tampered = [&](const std::function<void(Json&)>& change) {
    cut_back("part");
    const std::string path = folder_.file("part/checkpoint/step-00000020/manifest.json");
    Json manifest = Json::parse(read_file(path));
    manifest.erase("sha256");
    change(manifest);
    const std::string text = manifest.dump();
    manifest["sha256"] = sha256_hex(std::as_bytes(std::span(text)));
    std::ofstream(path) << manifest.dump(2) << "\n";
    const CommandResult result = trireme({"train", "--resume", "part"});
    EXPECT_EQ(result.code, 12) << manifest.dump(1) << result.out << result.err;
    return result.err;
  };
  const auto part = [](const char* name, const char* key, Json value) {
    return [=](Json& manifest) {
      Json inner = Json::parse(manifest["parts"][name].get<std::string>());
      inner[key] = value;
      manifest["parts"][name] = inner.dump();
    };
  };
  EXPECT_THAT(tampered([](Json& m) { m["files"] = Json::object(); }),
              HasSubstr("lists no hashes of model.safetensors"));
  for (const Json& steps : {Json(-1), Json(INT64_MAX), Json(UINT64_MAX), Json(1e300), Json("3"),
                            Json(nullptr), Json::array({3})})
    EXPECT_THAT(tampered(part("train", "optimizer_steps", steps)), HasSubstr("optimizer_steps"));
  EXPECT_THAT(tampered(part("train", "optimizer_steps", 21)), HasSubstr("21 updates"));
  EXPECT_THAT(tampered(part("data", "position", 19)), HasSubstr("19 batches"));
  EXPECT_THAT(tampered(part("data", "position", INT64_MAX)), HasSubstr("position"));
  EXPECT_THAT(tampered(part("early_stop", "waited", -3)), HasSubstr("waited"));
  for (const char* name : {"train", "data", "early_stop"})
    for (const char* text : {"", "{}", "[[[["}) tampered([&](Json& m) { m["parts"][name] = text; });
  tampered([](Json& m) { m["parts"] = Json::object(); });
  tampered([](Json& m) { m["step"] = INT64_MAX; });
}

TEST_F(Resume, OptionsAndPathsThatCannotBeAreRefused) {
  const auto refused = [&](const std::vector<std::string>& options) {
    std::vector<std::string> all = {"train"};
    all.insert(all.end(), options.begin(), options.end());
    const CommandResult result = trireme(all);
    EXPECT_EQ(result.code, 2) << result.out << result.err;
    EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
    return result.err;
  };
  EXPECT_THAT(refused({"--resume", ""}), HasSubstr("--resume is empty"));
  EXPECT_THAT(refused({forty_, "--out", ""}), HasSubstr("--out is empty"));
  EXPECT_THAT(refused({forty_, "--data", ""}), HasSubstr("--data: the value is empty"));
  EXPECT_THAT(refused({forty_, "--out", "a\nb"}), HasSubstr("--out a\\x0ab"));
  EXPECT_THAT(refused({forty_, "--out", "a\x1b[2J"}), HasSubstr("control character"));
  EXPECT_THAT(refused({forty_, "--out", "caf\xe9", "--ranks", "2"}), HasSubstr("caf\\xe9"));
  EXPECT_THAT(refused({forty_, "--trace", "a\nb"}), HasSubstr("--trace a\\x0ab"));
  EXPECT_THAT(refused({forty_, "--changed", "train.seed"}),
              HasSubstr("--changed train.seed needs --resume"));
  EXPECT_THAT(refused({forty_, "--data", folder_.write("caf\xe9.txt", "text")}),
              AllOf(HasSubstr("--data: data.path"), HasSubstr("UTF-8")));
}

// TOML writes such characters as escape codes.
TEST_F(Resume, APathWithControlCharactersIsWrittenAndReadBack) {
  const std::string data =
      folder_.write("a\r\n\x01\x7f\"\\.txt", read_file(folder_.file("data.txt")));
  for (const char* ranks : {"1", "2"}) {
    const std::string run = std::string("run-") + ranks;
    const CommandResult first = trireme({"train", forty_, "--data", data, "--set", "train.steps=2",
                                         "--out", run, "--ranks", ranks});
    EXPECT_EQ(first.code, 0) << first.out << first.err;
    const CommandResult second =
        trireme({"train", "--resume", run, "--set", "train.steps=3", "--ranks", ranks});
    EXPECT_EQ(second.code, 0) << second.out << second.err;
  }
}

// Ranks refuse a checkpoint of other shapes; the run is what it was.
TEST_F(Resume, AChangeThatTheCheckpointDoesNotFitIsNotKept) {
  const std::string config = tiny_config(folder_, "steps = 4\n");
  ASSERT_EQ(trireme({"train", config, "--out", "run"}).code, 0);
  const std::string before = read_file(folder_.file("run/config.toml"));
  for (const char* change : {"model.width=16", "optimizer.name=sgd"}) {
    const CommandResult refused = trireme({"train", "--resume", "run", "--changed", change});
    EXPECT_EQ(refused.code, 12) << refused.out << refused.err;
    EXPECT_EQ(read_file(folder_.file("run/config.toml")), before) << change;
  }
  EXPECT_EQ(trireme({"eval", "run"}).code, 0);
  EXPECT_EQ(trireme({"train", "--resume", "run", "--set", "train.steps=6"}).code, 0);
}

// The command makes the folder itself; RUN/checkpoint written out is the default place.
TEST_F(Resume, CheckpointsMayBeInANewFolderOfTheRun) {
  const std::string config = tiny_config(folder_, "steps = 4\n");
  for (const std::string place : {"saved", "checkpoint"}) {
    const std::string run = "run-" + place, path = run + "/" + place;
    const CommandResult result =
        trireme({"train", config, "--out", run, "--set", "checkpoint.path=" + path});
    ASSERT_EQ(result.code, 0) << result.out << result.err;
    EXPECT_TRUE(fs::exists(folder_.file(path + "/latest"))) << place;
    const CommandResult part = trireme({"inspect", run, "--part", "train"});
    EXPECT_EQ(part.code, 0) << part.err;
    EXPECT_THAT(part.out, HasSubstr("step-00000004"));
    EXPECT_THAT(trireme({"inspect", path}).out, HasSubstr("--part train has"));
    const CommandResult more = trireme({"train", "--resume", run, "--set", "train.steps=6"});
    EXPECT_EQ(more.code, 0) << more.out << more.err;
  }
}

TEST_F(Resume, ATextOfAFewBytesIsEnough) {
  const std::string config =
      folder_.write("few.toml",
                    "[model]\nname = \"gpt\"\nlayers = 1\nheads = 1\nwidth = 8\nblock = 1\n"
                    "[data]\npath = \"" +
                        folder_.write("few.txt", "a text of 20 bytes!\n") +
                        "\"\n[batch]\nglobal = 2\nmicro = 1\n[train]\nsteps = 4\nwarmup = 0\n"
                        "validate_sequences = 1\nsample_bytes = 5\n");
  const CommandResult result = trireme({"train", config, "--out", "run"});
  EXPECT_EQ(result.code, 0) << result.out << result.err;
  EXPECT_EQ(trireme({"eval", "run"}).code, 0);
}

}  // namespace
}  // namespace trireme::testing
