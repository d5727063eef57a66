#include "trireme/train/run/run_folder.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "trireme/base/clock.h"
#include "trireme/base/error.h"
#include "trireme/storage/faulty_file_system_test.h"
#include "trireme/storage/folder.h"
#include "trireme/train/config/schema.h"
#include "trireme/train/config/worker_spec.h"
#include "trireme/train/run/run_claim.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;
using storage::FaultyFileSystem;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using train::RunClaim;
using train::RunFolder;
using train::RunRequest;
using train::RunState;

// Every test works in its own empty folder.
class RunFolderTest : public ::testing::Test {
 protected:
  RunFolderTest() : before_(fs::current_path()) {
    std::string pattern = ::testing::TempDir() + "runs-XXXXXX";
    place_ = mkdtemp(pattern.data());
    fs::current_path(place_);
  }
  ~RunFolderTest() override {
    fs::current_path(before_);
    fs::remove_all(place_);
  }

  template <class Call>
  static std::string refusal(Call call) {
    try {
      call();
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "taken";
  }
  static std::string refusal_of(const std::string& out, const std::string& resume = "") {
    return refusal([&] { RunClaim({.out = out, .resume = resume}).take("x"); });
  }
  static void started(const std::string& path, const std::vector<std::string>& events) {
    fs::create_directories(path);
    RunFolder(path).write_config(train::read_config("", [](const char*) { return nullptr; }, {}));
    std::ofstream file(path + "/events.jsonl");
    for (const std::string& event : events) file << event << "\n";
  }
  static void saved(const std::string& path, std::int64_t step) {
    const storage::FileWriter file = [](const auto& sink) {
      sink(std::as_bytes(std::span(std::string_view("weights"))));
    };
    storage::CheckpointFolder(storage::local_file_system(), path + "/checkpoint")
        .write({.step = step}, {{storage::kModelFile, file}, {storage::kStateFile, file}}, 1);
  }
  static std::string read(const std::string& path) {
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), {}};
  }

 private:
  fs::path before_, place_;
};

TEST_F(RunFolderTest, KnowsItsOwnPlaceOfCheckpointsByAnyName) {
  const RunFolder run("runs/a");
  const std::string whole = fs::absolute("runs/a/checkpoint").string();
  for (const std::string& place :
       {run.own_checkpoint(), whole, std::string("./runs/b/../a/checkpoint/")})
    EXPECT_TRUE(run.is_own_checkpoint(place) && run.contains(place)) << place;
  for (const char* place : {"runs/a", "runs/b/checkpoint", "s3://runs/a/checkpoint", "checkpoint"})
    EXPECT_FALSE(run.is_own_checkpoint(place)) << place;
  EXPECT_TRUE(run.contains("runs/a/elsewhere"));
  for (const char* place : {"runs/ab", "runs/a", "runs/a/../b", "s3://runs/a/b"})
    EXPECT_FALSE(run.contains(place)) << place;
  const RunFolder unnamed("");
  EXPECT_FALSE(unnamed.contains("checkpoint") || unnamed.is_own_checkpoint("checkpoint"));
}

TEST_F(RunFolderTest, TakesTheNextFreeName) {
  RunClaim first({}), second({}), third({});
  EXPECT_EQ(first.take("gpt").path(), "runs/gpt");
  EXPECT_EQ(second.take("gpt").path(), "runs/gpt-2");
  EXPECT_EQ(third.take("gpt").path(), "runs/gpt-3");
  EXPECT_THAT(refusal([] { RunClaim({}).take("a\nb"); }), HasSubstr("a\\x0ab"));
}

TEST_F(RunFolderTest, NeverTakesAFolderThatHoldsSomethingElse) {
  std::ofstream("file") << "x";
  EXPECT_THAT(refusal_of("file"), HasSubstr("is a file"));
  for (const char* name : {"notes.txt", "checkpoint", "tensorboard", "events.jsonl"}) {
    fs::create_directories("full");
    std::ofstream(std::string("full/") + name) << "x";
    for (const char* resume : {"", "auto"})
      EXPECT_THAT(refusal_of("full", resume),
                  AllOf(HasSubstr("full is not empty"), HasSubstr(std::string("holds ") + name)));
    EXPECT_TRUE(fs::exists(std::string("full/") + name));
    fs::remove_all("full");
  }
  fs::create_directory("empty");
  RunClaim claim({.out = "empty"});
  EXPECT_EQ(claim.take("x").path(), "empty");
}

TEST_F(RunFolderTest, NeverTakesAFolderThatHoldsARun) {
  started("a/b", {"{\"event\":\"plan\"}", "{\"event\":\"step\",\"step\":1}"});
  EXPECT_EQ(RunFolder("a/b").state(), RunState::Begun);
  EXPECT_THAT(refusal_of("a/b"),
              AllOf(HasSubstr("already holds a run"), HasSubstr("--resume auto --out a/b")));
  EXPECT_THAT(refusal_of("", "a/b"), AllOf(HasSubstr("no checkpoint to continue from"),
                                           HasSubstr("--out a/b --resume auto")));
  saved("a/b", 20);
  EXPECT_EQ(RunFolder("a/b").state(), RunState::Run);
  EXPECT_THAT(refusal_of("a/b"), HasSubstr("--resume a/b"));
  EXPECT_FALSE(fs::exists("a/b/.lock"));
}

// A run that was killed while writing config.toml, or refused before the first step.
TEST_F(RunFolderTest, AStartThatTookNoStepHoldsNothing) {
  fs::create_directories("a");
  std::ofstream("a/config.toml.new") << "# The resol";
  EXPECT_EQ(RunFolder("a").state(), RunState::Free);
  for (const char* resume : {"", "auto"}) {
    RunClaim claim({.out = "a", .resume = resume});
    EXPECT_EQ(claim.take("x").path(), "a");
    EXPECT_FALSE(fs::exists("a/config.toml.new"));
    std::ofstream("a/config.toml.new") << "x";
  }
  started("a", {"{\"event\":\"plan\"}"});
  fs::create_directories("a/tensorboard");
  fs::create_directories("a/checkpoint/.tmp-step-00000005");
  std::ofstream("a/worker_spec") << "of a job under a coordinator";
  EXPECT_EQ(RunFolder("a").state(), RunState::Free);
  RunClaim claim({.out = "a"});
  claim.take("x");
  EXPECT_FALSE(claim.resumes());
  EXPECT_FALSE(fs::exists("a/events.jsonl"));
  EXPECT_FALSE(fs::exists("a/checkpoint"));
}

TEST_F(RunFolderTest, AConfigurationOfAPersonIsNoRestOfAStart) {
  fs::create_directories("a");
  std::ofstream("a/config.toml") << "[train]\nsteps = 3\n";
  EXPECT_EQ(RunFolder("a").state(), RunState::Begun);
  EXPECT_THAT(refusal_of("a"), HasSubstr("already holds a run"));
}

// A run that was killed after renaming its first checkpoint and before writing `latest`.
TEST_F(RunFolderTest, ACheckpointCountsWithoutLatest) {
  started("a", {"{\"event\":\"step\",\"step\":1}"});
  saved("a", 20);
  fs::remove("a/checkpoint/latest");
  EXPECT_EQ(RunFolder("a").newest_step(), 20);
  for (const RunRequest& request : {RunRequest{.out = "a", .resume = "auto"}, {.resume = "a/"}}) {
    RunClaim claim(request);
    EXPECT_TRUE(claim.resumes());
    EXPECT_EQ(claim.take("x").path(), "a");
    EXPECT_TRUE(fs::exists("a/events.jsonl"));
  }
}

TEST_F(RunFolderTest, OneJobAtATimeHasIt) {
  saved("a", 20);
  const std::string us = "process " + std::to_string(getpid());
  RunClaim claim({.resume = "a"});
  EXPECT_THAT(refusal_of("a", "auto"), AllOf(HasSubstr("a is in use by"), HasSubstr(us)));
  EXPECT_THAT(refusal_of("", "a"), HasSubstr(us));
  EXPECT_THAT(refusal_of("a"), HasSubstr(us)) << "advice to resume it would be refused, too";
  RunClaim first({.out = "new"}), second({.out = "new"});  // neither has made the folder
  EXPECT_FALSE(fs::exists("new"));
  first.take("x");
  EXPECT_THAT(refusal([&] { second.take("x"); }), HasSubstr(us));
}

TEST_F(RunFolderTest, AFolderThatCannotBeMadeIsNamed) {
  std::ofstream("file") << "text";
  EXPECT_THAT(refusal_of("file/a/b"), HasSubstr("file is a file"));
  EXPECT_THAT(refusal_of("", "file"), HasSubstr("Give the folder that `trireme train` printed"));
  try {
    RunClaim({.out = "/proc/a"}).take("x");
    FAIL();
  } catch (const ResourceError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("/proc/a"), HasSubstr("--out DIR")));
  }
}

// The other job ended after the second one decided and before it locked.
TEST_F(RunFolderTest, AFolderThatAnotherJobFilledMeanwhileIsNotTaken) {
  for (const char* resume : {"", "auto"}) {
    RunClaim claim({.out = "a", .resume = resume});
    saved("a", 20);
    EXPECT_THAT(refusal([&] { claim.take("x"); }),
                AnyOf(HasSubstr("already holds a run"), HasSubstr("Start this command again")));
    fs::remove_all("a");
  }
}

TEST_F(RunFolderTest, PathsThatCannotBePrintedAreRefused) {
  for (const char* path : {"a\nb", "a\rb", "caf\xe9", "a\x1b[2J"}) {
    EXPECT_THAT(refusal_of(path), AllOf(HasSubstr("--out"), HasSubstr("control character")));
    EXPECT_THAT(refusal_of("", path), HasSubstr("--resume"));
    EXPECT_FALSE(fs::exists(path));
  }
}

TEST_F(RunFolderTest, AFullDiskLeavesNoUnfinishedConfiguration) {
  fs::create_directory("a");
  const auto none = [](const char*) { return nullptr; };
  const auto full = std::make_shared<FaultyFileSystem>(FaultyFileSystem::Fault::DiskFull, 1);
  EXPECT_THROW(RunFolder("a", full).write_config(train::read_config("", none, {})), ResourceError);
  EXPECT_TRUE(fs::is_empty("a"));
}

// The power is cut at each act of a start that resumes the run with other values, and has not loaded the
// checkpoint.
TEST_F(RunFolderTest, WheneverAResumedRunIsCutOffItHasAWholeConfigurationAgain) {
  const std::string root = fs::current_path() / "disk";
  const auto none = [](const char*) { return nullptr; };
  const config::Config before = train::read_config("", none, {"train.steps=7"});
  const config::Config after = train::read_config("", none, {"train.steps=8"});
  for (const auto loss :
       {FaultyFileSystem::Loss::All, FaultyFileSystem::Loss::Ends, FaultyFileSystem::Loss::Some}) {
    int acts_to_keep = 0;
    bool ended = false;
    for (int fail_at = 0; !ended; ++fail_at) {
      SCOPED_TRACE(fail_at);
      fs::remove_all(root);
      fs::create_directories(root + "/a");
      RunFolder(root + "/a").write_config(before);
      const std::string text = read(root + "/a/config.toml");
      const auto disk =
          std::make_shared<FaultyFileSystem>(FaultyFileSystem::Fault::Crash, fail_at, root, loss);
      const RunFolder folder(root + "/a", disk);
      try {
        folder.keep_config();
        acts_to_keep = disk->num_acts();
        folder.write_config(after);
        ended = true;
      } catch (const storage::Crashed&) {
      }
      const bool kept = RunFolder(root + "/a").take_former_config();
      EXPECT_EQ(read(root + "/a/config.toml"), text);
      EXPECT_TRUE(kept || !ended);
    }
    EXPECT_GT(acts_to_keep, 3) << "it is created, written, synced and renamed";
  }
}

// Another run's later start would take it for its own.
TEST_F(RunFolderTest, ARunThatBeginsAgainHasNoFormerConfiguration) {
  started("a", {"{\"event\":\"step\",\"step\":1}"});
  RunFolder("a").keep_config();
  RunClaim claim({.out = "a", .resume = "auto"});
  EXPECT_FALSE(claim.take("x").take_former_config());
}

TEST_F(RunFolderTest, AFileThatIsNoRegularOneIsWrittenInPlace) {
  std::ofstream("target") << "before";
  fs::create_symlink("target", "link");
  train::write_whole("link", "through the link");
  EXPECT_TRUE(fs::is_symlink("link"));
  EXPECT_EQ(read("target"), "through the link");
  ASSERT_EQ(mkfifo("pipe", 0600), 0);
  const int pipe = ::open("pipe", O_RDWR | O_NONBLOCK | O_CLOEXEC);
  train::write_whole("pipe", "through the pipe");
  char text[32];
  const ssize_t size = ::read(pipe, text, sizeof text);
  EXPECT_EQ(std::string(text, static_cast<std::size_t>(std::max<ssize_t>(size, 0))),
            "through the pipe");
  ::close(pipe);
  EXPECT_THROW(train::write_whole(".", "a folder"), ResourceError);
}

// Starts a run as --resume auto does, until its sixth step or a fault, with a checkpoint every two
// steps. Its weights depend on every step.
std::int64_t live(const std::string& path, const std::shared_ptr<storage::FileSystem>& storage) {
  const RunFolder folder(path, storage);
  storage->make_directory(path);
  storage::CheckpointFolder checkpoints(storage, folder.checkpoint());
  std::int64_t done = folder.newest_step(), weights = 0;
  const RunState state = folder.state();
  EXPECT_TRUE(state == RunState::Free || state == RunState::Run);
  if (state == RunState::Run) {
    weights = std::stol(checkpoints.verify(done).parts.at("train"));
  } else {
    folder.clear();
  }
  static const config::Config config =
      train::read_config("", [](const char*) { return nullptr; }, {});
  folder.write_config(config);
  while (done < 6) {
    weights = 2 * weights + 1;
    if (++done % 2 != 0) continue;
    const storage::FileWriter file = [](const auto& sink) {
      sink(std::as_bytes(std::span(std::string_view("weights"))));
    };
    checkpoints.write({.step = done, .parts = {{"train", std::to_string(weights)}}},
                      {{storage::kModelFile, file}, {storage::kStateFile, file}}, 1);
  }
  return weights;
}

// Cuts the power or fills the disk at every operation of a run, and again in the run after it.
TEST_F(RunFolderTest, WhateverActIsTheLastTheRunGoesOnToTheSameWeights) {
  const fs::path memory = "/dev/shm";  // faster: this syncs hundreds of thousands of files
  const fs::path root = (access(memory.c_str(), W_OK) == 0 ? memory : fs::current_path()) /
                        ("run_folder_test_" + std::to_string(getpid()));
  const std::string run = (root / "runs/a").string();
  using Fault = FaultyFileSystem::Fault;
  using Loss = FaultyFileSystem::Loss;
  const auto ends = [&](Fault fault, int fail_at, Loss loss) {
    try {
      live(run, std::make_shared<FaultyFileSystem>(fault, fail_at, root.string(), loss));
      return true;
    } catch (const storage::Crashed&) {
    } catch (const ResourceError&) {
    }
    return false;
  };
  const std::vector<std::pair<Fault, Loss>> kinds = {{Fault::Crash, Loss::All},
                                                     {Fault::Crash, Loss::Ends},
                                                     {Fault::Crash, Loss::Some},
                                                     {Fault::DiskFull, Loss::Ends}};
  for (const auto& [fault, loss] : kinds) {
    int first = 0;
    for (bool ended = false; !ended; ++first) {
      bool again = false;
      for (int second = first % 8; !again && !ended; second += 8) {
        SCOPED_TRACE(std::to_string(first) + ", then " + std::to_string(second) + ", kind " +
                     std::to_string(static_cast<int>(fault)) +
                     std::to_string(static_cast<int>(loss)));
        fs::remove_all(root);
        fs::create_directory(root);
        ended = ends(fault, first, loss);
        again = ends(fault, second, loss);
        ASSERT_EQ(live(run, storage::local_file_system()), 63);
        ASSERT_EQ(live(run, storage::local_file_system()), 63);  // nothing left to do
      }
    }
    EXPECT_GT(first, 50);
  }
  fs::remove_all(root);
}

TEST_F(RunFolderTest, ConfigCanBeReadBack) {
  RunClaim claim({});
  const RunFolder folder = claim.take("gpt");
  const auto none = [](const char*) { return nullptr; };
  const config::Config config = train::read_config("", none, {"train.steps=7"});
  folder.write_config(config);
  const config::Config again = train::read_config(folder.config(), none, {});
  for (const config::Key& key : config.schema().keys()) {
    EXPECT_EQ(config.value(key.name), again.value(key.name)) << key.name;
  }
  EXPECT_THROW(RunFolder::existing("nowhere"), ConfigError);
  EXPECT_EQ(RunFolder::existing("runs/gpt/").path(), "runs/gpt");
}

TEST_F(RunFolderTest, ConfigKeepsWhereItsValuesCameFrom) {
  std::ofstream("my # job.toml") << "[train]\nsteps = 7\nseed = 3\n[data]\npath = \"a # b\"\n";
  const auto variable = [](const char* name) {
    return std::string_view(name) == "TRIREME_TIMEOUT_USER_CODE" ? "99" : nullptr;
  };
  const auto none = [](const char*) { return nullptr; };
  config::Config config = train::read_config("my # job.toml", variable, {"train.clip=0.5"});
  fs::create_directory("a");
  RunFolder("a").write_config(config);
  config::Config again = train::read_config("a/config.toml", none, {"train.seed=4"});
  train::restore_sources(again, "a/config.toml");
  for (const config::Key& key : again.schema().keys()) {
    EXPECT_EQ(again.source(key.name), key.name == "train.seed" ? "--set" : config.source(key.name))
        << key.name;
  }
  EXPECT_EQ(again.source("data.path"), "my # job.toml:5");
  EXPECT_EQ(again.source("timeout.user_code"), "TRIREME_TIMEOUT_USER_CODE");
  EXPECT_EQ(again.source("train.clip"), "--set");
  EXPECT_EQ(again.source("train.precision"), "default");
  // After an edit by hand, the changed line has the file as its source; others keep their sources.
  std::string text = read("a/config.toml");
  const auto at = text.find("steps = 7");
  text.replace(at, text.find('\n', at) - at, "steps = 8\n# a word of mine");
  std::ofstream("a/config.toml") << text;
  config::Config edited = train::read_config("a/config.toml", none, {});
  train::restore_sources(edited, "a/config.toml");
  EXPECT_THAT(edited.source("train.steps"), HasSubstr("config.toml:"));
  EXPECT_EQ(edited.source("train.seed"), "my # job.toml:3");
  EXPECT_EQ(edited.source("train.clip"), "--set");
}

// RUN/best, which `train --resume` takes.
TEST_F(RunFolderTest, ACopiedConfigurationHasItsCheckpointsInItsOwnFolder) {
  const auto none = [](const char*) { return nullptr; };
  fs::create_directories("a/best");
  const RunFolder run("a"), best("a/best");
  run.write_config(
      train::read_config("", none, {"checkpoint.path=s3://models/a", "train.steps=7"}));
  best.copy_config(run);
  saved("a/best", 3);
  config::Config copied = train::read_config(best.config(), none, {});
  train::restore_sources(copied, best.config());
  EXPECT_EQ(copied.text("checkpoint.path"), "");
  EXPECT_EQ(copied.integer("train.steps"), 7);
  EXPECT_EQ(copied.source("train.steps"), "--set");
  RunClaim claim({.resume = "a/best"});
  claim.keep_checkpoints_at(copied.text("checkpoint.path"));
  EXPECT_TRUE(claim.resumes());
  EXPECT_EQ(claim.folder().newest_step(), 3);
}

TEST_F(RunFolderTest, AnotherSyncLeavesTheServersKeysBehind) {
  const auto none = [](const char*) { return nullptr; };
  const auto read_again = [&](const std::vector<std::string>& set) {
    config::Config config = train::read_config("a/config.toml", none, set);
    train::leave_servers(config, "a/config.toml");
    return config;
  };
  fs::create_directory("a");
  RunFolder("a").write_config(
      train::read_config("", none, {"parallel.sync=server", "server.count=3"}));
  EXPECT_EQ(read_again({}).integer("server.count"), 3);
  EXPECT_EQ(read_again({"train.steps=9"}).integer("server.count"), 3);
  const config::Config plain = read_again({"parallel.sync=zero1"});
  EXPECT_EQ(plain.integer("server.count"), 1);
  EXPECT_EQ(plain.source("server.count"), "default");
  EXPECT_EQ(read_again({"parallel.sync=plain", "server.count=2"}).integer("server.count"), 2);
  // A file that no run wrote says what its user wants.
  std::ofstream("own.toml") << "[parallel]\nsync = \"server\"\n[server]\ncount = 3\n";
  config::Config own = train::read_config("own.toml", none, {"parallel.sync=plain"});
  train::leave_servers(own, "own.toml");
  EXPECT_EQ(own.integer("server.count"), 3);
}

TEST(WorkerSpec, CrossesAsText) {
  const train::WorkerSpec spec{.folder = "runs/with space",
                               .trace = "a trace.json",
                               .resume = true,
                               .terminal = true,
                               .predicted_bytes = 12345,
                               .predicted_step = 0.25,
                               .corpus = 7,
                               .lock = 9,
                               .claim = "0123abcd"};
  const train::WorkerSpec again = train::WorkerSpec::from_text(spec.to_text());
  EXPECT_EQ(again.folder, spec.folder);
  EXPECT_EQ(again.resume, true);
  EXPECT_EQ(again.json, false);
  EXPECT_EQ(again.terminal, true);
  EXPECT_EQ(again.predicted_bytes, 12345);
  EXPECT_EQ(again.predicted_step, 0.25);
  EXPECT_EQ(again.trace, spec.trace);
  EXPECT_EQ(again.corpus, 7);
  EXPECT_EQ(again.lock, 9);
  EXPECT_EQ(again.claim, "0123abcd");
}

// train.max_time does not begin anew with a process that is started later, or on another host.
TEST(WorkerSpec, CarriesTheStartOfTheCommandToOtherHosts) {
  const train::WorkerSpec spec{
      .folder = "a", .began = (steady_now() - std::chrono::hours(1)).time_since_epoch().count()};
  EXPECT_EQ(train::WorkerSpec::from_text(spec.to_text()).began, spec.began);
  const train::WorkerSpec there = train::WorkerSpec::from_text(spec.elsewhere().to_text());
  // Clocks are read at two moments. A minute is less than an hour.
  EXPECT_NEAR(to_seconds(Duration(there.began - spec.began)), 0, 60);
}

}  // namespace
}  // namespace trireme
