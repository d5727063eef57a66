#include "trireme/checkpoint/checkpointer.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>

#include "trireme/base/error.h"
#include "trireme/job/job.h"
#include "trireme/storage/faulty_file_system_test.h"
#include "trireme/storage/folder.h"
#include "trireme/storage/forwarding_file_system_test.h"
#include "trireme/storage/storage.h"
#include "trireme/testing/run_ranks.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;
using storage::FaultyFileSystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A model whose weight is the number of steps done.
class Counter final : public Saveable {
 public:
  std::vector<NamedShard> state() override { return {{"w", DType::F32, {2}, 0, 2, weight}}; }
  std::string metadata() const override { return text; }
  void restored(const std::string& metadata) override { text = metadata; }
  void set(long steps) {
    weight.fill_(static_cast<double>(steps));
    text = std::to_string(steps);
  }
  at::Tensor weight = at::zeros({2});
  std::string text = "0";
};

// A Counter with a vote after every step.
class Voter final : public Saveable, public StepVoter {
 public:
  std::vector<NamedShard> state() override { return counter.state(); }
  std::string metadata() const override { return counter.metadata(); }
  void restored(const std::string& metadata) override { counter.restored(metadata); }
  int stop_signal() const noexcept override { return signal; }
  bool all_ranks_return() const override { return all_return; }
  std::optional<std::int64_t> steps_ended() const override { return 0; }
  Counter counter;
  int signal = 0;
  bool all_return = true;
};

// NFS: while the weights in `folder` are read, another host does `meanwhile` and removes them.
class RemovedElsewhere final : public storage::ForwardingFileSystem {
 public:
  RemovedElsewhere(std::string folder, std::function<void()> meanwhile)
      : path_(std::move(folder) + "/" + storage::kModelFile), meanwhile_(std::move(meanwhile)) {}
  std::unique_ptr<storage::InputFile> open(const std::string& path) override {
    struct Stale final : storage::InputFile {
      explicit Stale(RemovedElsewhere& files) : files(files), bytes(fs::file_size(files.path_)) {}
      std::int64_t size() const noexcept override { return static_cast<std::int64_t>(bytes); }
      void read(std::int64_t, std::span<std::byte>) override {
        files.meanwhile_();
        throw ResourceError("cannot read " + files.path_ + ": Stale file handle", {});
      }
      RemovedElsewhere& files;
      const std::uintmax_t bytes;
    };
    if (path == path_) return std::make_unique<Stale>(*this);
    return ForwardingFileSystem::open(path);
  }

 private:
  const std::string path_;
  const std::function<void()> meanwhile_;
};

class CheckpointerTest : public ::testing::Test {
 protected:
  static Job& job() {  // of one rank; a process may have only one Job
    static char name[] = "test";
    static char* arguments[] = {name, nullptr};
    static Job job(1, arguments);
    return job;
  }
  void SetUp() override {
    directory_ = fs::path(::testing::TempDir()) / ("checkpointer_" + std::to_string(::getpid()));
    fs::remove_all(directory_);
  }
  void TearDown() override { fs::remove_all(directory_); }

  // Trains from the step of resume() to `steps`; returns the first step.
  long run(long steps, CheckpointerOptions options = {.every = 3, .keep = 2}) {
    Checkpointer checkpointer(job(), directory_.string(), options);
    checkpointer.add("train", counter_);
    const long first = checkpointer.resume();
    for (long step = first; step < steps; ++step) {
      counter_.set(step + 1);
      checkpointer.after(step);
    }
    checkpointer.wait();
    return first;
  }
  // Names in the folder, without the lock file.
  std::vector<std::string> names() const {
    auto names = storage::local_file_system()->list(directory_.string());
    std::erase(names, ".lock");
    return names;
  }
  // Like run(), with weights that depend on every step: 2^steps - 1.
  void add_up(long steps, CheckpointerOptions options) {
    Checkpointer checkpointer(job(), directory_.string(), std::move(options));
    checkpointer.add("train", counter_);
    for (long step = checkpointer.resume(); step < steps; ++step) {
      counter_.set(2 * std::stol(counter_.text) + 1);
      checkpointer.after(step);
    }
    checkpointer.wait();
  }
  template <class Call>
  static std::string refusal(Call call, int exit_code) {
    try {
      call();
    } catch (const Error& error) {
      EXPECT_EQ(error.exit_code(), exit_code) << error.what();
      return error.what();
    }
    return "accepted";
  }

  fs::path directory_;
  Counter counter_;
};

TEST_F(CheckpointerTest, SavesWhereDueAndGoesOnThere) {
  EXPECT_EQ(run(11), 0);
  EXPECT_THAT(names(), ElementsAre("latest", "step-00000006", "step-00000009"));
  counter_.set(0);
  EXPECT_EQ(run(9), 9);  // nothing left to do
  EXPECT_EQ(counter_.text, "9");
  EXPECT_EQ(counter_.weight[1].item<float>(), 9);
  EXPECT_EQ(run(12), 9);
  EXPECT_THAT(names(), ElementsAre("latest", "step-00000009", "step-00000012"));
}

TEST_F(CheckpointerTest, SavesWhenAskedAndNotTwice) {
  Checkpointer checkpointer(job(), directory_.string(), {.every = 0});
  checkpointer.add("train", counter_);
  checkpointer.after(0);
  EXPECT_TRUE(names().empty());
  checkpointer.save(5);
  checkpointer.save(5);  // a stop just after a checkpoint
  checkpointer.wait();
  EXPECT_THAT(names(), ElementsAre("latest", "step-00000005"));
}

TEST_F(CheckpointerTest, AStepThatIsPassedIsSavedAtTheNext) {
  Checkpointer checkpointer(job(), directory_.string(), {.every = 5});
  checkpointer.add("train", counter_);
  checkpointer.after(3);
  checkpointer.after(5);  // steps 4 and 5 in one
  checkpointer.wait();
  EXPECT_THAT(names(), ElementsAre("latest", "step-00000006"));
}

TEST_F(CheckpointerTest, AStopSavesAndEndsWithItsCode) {
  for (const int code : {130, 143}) {
    fs::remove_all(directory_);
    Voter voter;
    Checkpointer checkpointer(job(), directory_.string(), {.every = 0});
    checkpointer.add("train", voter);
    checkpointer.after(0);
    EXPECT_TRUE(names().empty());
    voter.signal = code;
    EXPECT_THAT(refusal([&] { checkpointer.after(1); }, code),
                AllOf(HasSubstr("after step 2; the checkpoint is in " + directory_.string()),
                      HasSubstr("Start the program again")));
    EXPECT_THAT(names(), ElementsAre("latest", "step-00000002"));
  }
}

TEST_F(CheckpointerTest, WaitsForAStepFromWhichAllRanksReturn) {
  Voter voter;
  Checkpointer checkpointer(job(), directory_.string(), {.every = 2});
  checkpointer.add("train", voter);
  checkpointer.after(0);
  voter.all_return = false;
  voter.signal = 143;
  checkpointer.after(1);  // a checkpoint is due, and a stop was requested
  EXPECT_TRUE(names().empty());
  voter.all_return = true;
  voter.signal = 0;
  checkpointer.after(2);
  checkpointer.wait();
  EXPECT_THAT(names(), ElementsAre("latest", "step-00000003"));
}

TEST_F(CheckpointerTest, ALossOfAStepThatIsNotSavedIsNoOtherSteps) {
  Voter voter;
  Checkpointer checkpointer(job(), directory_.string(), {.every = 1, .keep = 1, .keep_best = 1});
  checkpointer.add("train", voter);
  const auto after = [&](long step, bool all_return, std::optional<double> loss) {
    if (loss) checkpointer.validated(*loss);
    voter.all_return = all_return;
    checkpointer.after(step);
    checkpointer.wait();
  };
  after(0, false, 1);
  after(1, true, std::nullopt);
  after(2, true, 2);
  after(3, true, 3);
  EXPECT_THAT(names(), ElementsAre("latest", "step-00000003", "step-00000004"));
}

TEST_F(CheckpointerTest, AnotherRunsFolderIsNotMixed) {
  run(3);
  Checkpointer checkpointer(job(), directory_.string(), {.every = 3});
  checkpointer.add("train", counter_);
  for (int i = 0; i < 2; ++i)
    EXPECT_THAT(refusal([&] { checkpointer.after(0); }, 2), HasSubstr("did not resume from"));
  EXPECT_THAT(names(), ElementsAre("latest", "step-00000003"));
}

TEST_F(CheckpointerTest, AFolderThatResumeRefusedIsNotSavedInto) {
  run(3, {.every = 3, .identity = "seed 1"});
  Checkpointer checkpointer(job(), directory_.string(), {.every = 1, .identity = "seed 2"});
  checkpointer.add("train", counter_);
  EXPECT_THAT(refusal([&] { checkpointer.resume(); }, 12), HasSubstr("seed 1"));
  EXPECT_THAT(refusal([&] { checkpointer.after(0); }, 2), HasSubstr("did not resume from"));
  EXPECT_THAT(names(), ElementsAre("latest", "step-00000003"));
}

TEST_F(CheckpointerTest, AnotherIdentityIsRefusedWithBothValues) {
  run(3, {.every = 3, .identity = "seed 1"});
  EXPECT_THAT(refusal([&] { run(6, {.every = 3, .identity = "seed 2"}); }, 12),
              AllOf(HasSubstr("seed 1"), HasSubstr("seed 2")));
  EXPECT_EQ(run(3, {.every = 3, .identity = "seed 1"}), 3);
  EXPECT_EQ(run(3), 3);  // an empty identity is not compared
}

TEST_F(CheckpointerTest, ADamagedOneIsNeitherTakenNorSkipped) {
  run(6);
  const fs::path model = directory_ / "step-00000006" / "model.safetensors";
  std::fstream(model, std::ios::in | std::ios::out | std::ios::binary)
      .seekp(-1, std::ios::end)
      .put('x');
  EXPECT_THAT(refusal([&] { run(9); }, 12),
              AllOf(HasSubstr(model.string()), HasSubstr("XXH3"), HasSubstr("Step 3 is intact")));
  fs::remove_all(directory_ / "step-00000006");  // as the error advises
  EXPECT_EQ(run(6), 3);
}

// It would be refused again.
TEST_F(CheckpointerTest, ARankWhosePeerRefusesACheckpointIsNotSentToIt) {
  run(3);
  std::ofstream(directory_ / "step-00000003" / "manifest.json") << "{";
  testing::run_ranks(2, [&](testing::RankContext& rank) {
    Job own(rank.transport, {}, nullptr);
    Checkpointer checkpointer(own, directory_.string(), {.every = 0, .lock = false});
    Counter seen;
    checkpointer.add("train", seen);
    const std::string said = refusal([&] { checkpointer.resume(); }, rank.rank == 0 ? 12 : 160);
    if (rank.rank == 0)
      rank.transport->abort(std::make_exception_ptr(PeerLost("the test ends this rank")));
    else
      EXPECT_THAT(said, HasSubstr("it may have refused the checkpoint"));
  });
}

TEST_F(CheckpointerTest, AReaderWhoseCheckpointIsRemovedTakesTheNewerOne) {
  run(3);
  const auto files = std::make_shared<RemovedElsewhere>(directory_ / "step-00000003",
                                                        [&] { run(6, {.every = 3, .keep = 1}); });
  Checkpointer reader(job(), directory_.string(),
                      {.every = 0, .storage = storage::folder_storage(files), .lock = false});
  Counter seen;
  EXPECT_EQ(reader.add("train", seen).resume(), 6);
  EXPECT_EQ(seen.text, "6");
  EXPECT_EQ(seen.weight[1].item<float>(), 6);
}

TEST_F(CheckpointerTest, AllRanksOfAReaderTakeTheNewerOneTogether) {
  for (const int reader : {0, 1, 2}) {
    SCOPED_TRACE(reader);
    fs::remove_all(directory_);
    counter_ = {};
    run(3);
    const auto files = std::make_shared<RemovedElsewhere>(directory_ / "step-00000003",
                                                          [&] { run(6, {.every = 3, .keep = 1}); });
    testing::run_ranks(3, [&](testing::RankContext& rank) {
      Job own(rank.transport, {}, nullptr);
      CheckpointerOptions options{.every = 0, .lock = false};
      if (rank.rank == reader) options.storage = storage::folder_storage(files);
      Checkpointer checkpointer(own, directory_.string(), options);
      Counter seen;
      EXPECT_EQ(checkpointer.add("train", seen).resume(), 6);
      EXPECT_EQ(seen.text, "6");
      EXPECT_EQ(seen.weight[1].item<float>(), 6);
    });
  }
}

TEST_F(CheckpointerTest, AFullDiskIsAResourceErrorAndTheOldOneStays) {
  run(3);
  CheckpointerOptions options{.every = 3, .patience = {}};
  options.storage = storage::folder_storage(
      std::make_shared<storage::FaultyFileSystem>(storage::FaultyFileSystem::Fault::DiskFull, 4));
  EXPECT_THAT(refusal([&] { run(6, options); }, 170), HasSubstr("full"));
  EXPECT_THAT(names(), ElementsAre("latest", "step-00000003"));
  EXPECT_EQ(run(6), 3);
}

TEST_F(CheckpointerTest, OneJobAtATimeHasTheFolder) {
  {
    Checkpointer first(job(), directory_.string());
    first.add("train", counter_);
    EXPECT_EQ(first.resume(), 0);
    const std::string us = "process " + std::to_string(::getpid());
    EXPECT_THAT(refusal([&] { run(3); }, 2), HasSubstr(us));
    Checkpointer unresumed(job(), directory_.string());
    EXPECT_THAT(refusal([&] { unresumed.save(1); }, 2), HasSubstr(us));
    Checkpointer reader(job(), directory_.string(), {.every = 0, .lock = false});
    EXPECT_EQ(reader.add("train", counter_).resume(), 0);
  }
  EXPECT_EQ(run(3), 0);
  EXPECT_THAT(storage::local_file_system()->list(directory_.string()),
              ElementsAre("latest", "step-00000003"));
}

// It has released the lock with the checkpoints.
TEST_F(CheckpointerTest, AFolderWhoseCheckpointsWereRemovedIsLockedAgain) {
  Checkpointer checkpointer(job(), directory_.string(), {.every = 3});
  checkpointer.add("train", counter_).resume();
  checkpointer.save_and_wait(1);
  checkpointer.remove_all();
  EXPECT_EQ(checkpointer.resume(), 0);
  Checkpointer other(job(), directory_.string());
  EXPECT_THAT(refusal([&] { other.add("train", counter_).resume(); }, 2),
              HasSubstr("is in use by"));
}

TEST_F(CheckpointerTest, AJobThatHasLostItsFolderSavesNothingMore) {
  Checkpointer hung(job(), directory_.string(), {.every = 3});
  hung.add("train", counter_).resume();
  hung.save_and_wait(1);
  const std::string lock = (directory_ / ".lock").string();
  std::string text = storage::text_of(*storage::local_file_system()->open(lock));
  std::ofstream(lock + "-next") << text.replace(text.find("since 20"), 8, "since 19");
  fs::rename(lock + "-next", lock);
  EXPECT_THAT(refusal([&] { hung.save_and_wait(2); }, 2),
              HasSubstr(directory_.string() + " is in use by process "));
  EXPECT_THAT(names(), ElementsAre("latest", "step-00000001"));
}

// A rank that cannot see whose the folder is when it first saves looks again at the next save.
TEST_F(CheckpointerTest, AStorageThatDoesNotTellWhoseItIsEndsNoTraining) {
  struct Away final : storage::ForwardingFileSystem {
    std::unique_ptr<storage::InputFile> open(const std::string& path) override {
      if (path.ends_with("/.lock") && looks++ == 0)
        throw ResourceError("the storage is away", {.operation = "test"});
      return ForwardingFileSystem::open(path);
    }
    int looks = 0;
  };
  const auto away = std::make_shared<Away>();
  testing::run_ranks(2, [&](testing::RankContext& rank) {
    Job own(rank.transport, {}, nullptr);
    CheckpointerOptions options{.every = 1, .patience = std::chrono::minutes(10)};
    if (rank.rank == 1) options.storage = storage::folder_storage(away);
    Counter counter;
    Checkpointer checkpointer(own, directory_.string(), options);
    checkpointer.add("train", counter).resume();
    for (const long steps : {1, 2}) checkpointer.save_and_wait(steps);
  });
  EXPECT_GE(away->looks, 2);
  EXPECT_THAT(names(), ElementsAre("latest", "step-00000001", "step-00000002"));
}

TEST_F(CheckpointerTest, AChangeOnPurposeIsTaken) {
  run(3, {.every = 3, .identity = "rate = 1\nseed = 1\n"});
  const CheckpointerOptions rate{
      .every = 3, .identity = "rate = 2\nseed = 1\n", .changed = {"rate"}};
  CheckpointerOptions both = rate;
  both.identity = "rate = 2\nseed = 2\n";
  EXPECT_THAT(refusal([&] { run(6, both); }, 12),
              AllOf(HasSubstr("seed = 2"), ::testing::Not(HasSubstr("rate"))));
  EXPECT_EQ(run(6, rate), 3);
  EXPECT_EQ(run(6, {.every = 3, .identity = "rate = 2\nseed = 1\n"}), 6);
}

TEST_F(CheckpointerTest, WeightsThatAreNaNAreNamed) {
  const at::Tensor before = counter_.weight.clone();
  Checkpointer checkpointer(job(), directory_.string());
  checkpointer.add("train", counter_);
  counter_.weight[1] = std::nan("");
  checkpointer.save(3);
  EXPECT_THAT(refusal([&] { checkpointer.resume(); }, 12),
              AllOf(HasSubstr("\"w\" holds NaN in 1 of 2 elements"), HasSubstr("older one")));
  counter_.weight.fill_(-std::numeric_limits<double>::infinity());
  checkpointer.save(4);
  EXPECT_EQ(checkpointer.resume(), 4);
}

TEST_F(CheckpointerTest, AnIdentityThatNoManifestHoldsIsRefused) {
  EXPECT_THAT(refusal([&] { Checkpointer(job(), "x", {.identity = "caf\xe9"}); }, 2),
              HasSubstr("UTF-8"));
}

// Cuts the power at every operation of a run with three checkpoints, and again at some operations
// of the run that resumes. A third run then reaches the weights of an uninterrupted run.
TEST_F(CheckpointerTest, ARunThatLosesThePowerTwiceEndsAtTheSameWeights) {
  const fs::path memory = "/dev/shm", disk = directory_;
  if (::access(memory.c_str(), W_OK) == 0)  // faster: this syncs about ten thousand files
    directory_ = memory / disk.filename();
  const auto options = [&](int fail_at, storage::FaultyFileSystem::Loss loss) {
    fs::create_directories(directory_);
    CheckpointerOptions options{.every = 2, .keep = 1};
    options.storage = storage::folder_storage(std::make_shared<storage::FaultyFileSystem>(
        storage::FaultyFileSystem::Fault::Crash, fail_at, directory_.string(), loss));
    return options;
  };
  const auto crashes = [&](int fail_at, storage::FaultyFileSystem::Loss loss) {
    counter_.set(0);
    try {
      add_up(6, options(fail_at, loss));
      return false;
    } catch (const storage::Crashed&) {
      return true;
    }
  };
  for (const auto loss :
       {storage::FaultyFileSystem::Loss::All, storage::FaultyFileSystem::Loss::Ends,
        storage::FaultyFileSystem::Loss::Some}) {
    int first = 0;
    for (bool more = true; more; ++first) {
      for (int second = 0; second < 40; second += 6 + first % 5) {
        SCOPED_TRACE(std::to_string(first) + ", then " + std::to_string(second));
        fs::remove_all(directory_);
        more = crashes(first, loss);
        crashes(second, loss);
        counter_.set(0);
        add_up(6, {.every = 2, .keep = 1});
        ASSERT_EQ(counter_.weight[0].item<float>(), 63);
        ASSERT_EQ(counter_.text, "63");
        if (!more) break;
      }
    }
    EXPECT_GT(first, 40);
  }
}

TEST_F(CheckpointerTest, SettingsThatKeepNothingAreRefused) {
  EXPECT_THAT(refusal([&] { Checkpointer(job(), "x", {.keep = 0}); }, 2), HasSubstr("keep = 0"));
}

TEST_F(CheckpointerTest, NumbersThatMeanNothingAreRefused) {
  const auto with = [](CheckpointerOptions options) {
    return refusal([&] { Checkpointer(job(), "x", options); }, 2);
  };
  EXPECT_THAT(with({.memory = -1}), HasSubstr("memory = -1"));
  EXPECT_THAT(with({.memory = 1, .memory_every = 0}), HasSubstr("memory_every = 0"));
  EXPECT_THAT(with({.patience = Duration::max()}), HasSubstr("a patience of 0 to 10^9 s"));
  EXPECT_THAT(with({.patience = Duration(-1)}), HasSubstr("a patience of 0 to 10^9 s"));
}

}  // namespace
}  // namespace trireme
