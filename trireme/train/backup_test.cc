// BackupAndRestore around a training on simulated ranks that dies in the middle and is started again.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "trireme/base/error.h"
#include "trireme/checkpoint/checkpointer.h"
#include "trireme/input/batches.h"
#include "trireme/job/job.h"
#include "trireme/models/models.h"
#include "trireme/net/sim/sim_network.h"
#include "trireme/storage/storage.h"
#include "trireme/strategy/strategy.h"
#include "trireme/tensor/random.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr long kStepsToDo = 10;

class Noise final : public Dataset {
 public:
  std::int64_t size() const override { return 50; }
  std::int64_t count_items(std::span<const std::int64_t> samples) const override {
    return static_cast<std::int64_t>(samples.size());
  }
  input::Fields read(std::span<const std::int64_t> samples) const override {
    const auto rows = static_cast<std::int64_t>(samples.size());
    at::Tensor features = at::empty({rows, 6}, at::kFloat), targets = at::empty({rows}, at::kLong);
    for (std::int64_t i = 0; i < rows; ++i) {
      tensor::fill_uniform(features[i], 7, std::to_string(samples[i]), -1, 1);
      targets[i] = samples[i] % 4;
    }
    return {{"features", features}, {"targets", targets}};
  }
};

struct Start {
  int ranks = 2;
  long dies_after = 0;  // steps; 0: it does not die
  std::int64_t width = 8;
  std::string sync = "zero1", identity = {};
  std::shared_ptr<storage::Storage> storage = nullptr;
};

struct Result {
  long first = -1;
  std::string hash, error;
};

class BackupTest : public ::testing::Test {
 protected:
  ~BackupTest() override { fs::remove_all(place_); }

  static void loop(Job& job, const std::string& place, const Start& start, Result& result) {
    Strategy strategy(job, models::make_mlp({.widths = {6, start.width, 4}}), {.sync = start.sync},
                      AdamW{.learning_rate = 0.01});
    Batches input = batches(job, std::make_shared<Noise>(),
                            {.batch = 12, .micro = 2, .steps = kStepsToDo, .prefetch = 0});
    BackupAndRestore backup(job, place,
                            {.every = 3, .identity = start.identity, .storage = start.storage});
    backup.add("train", strategy).add("data", input);
    result.first = backup.restore();
    for (long step = result.first; step < kStepsToDo; ++step) {
      strategy.step(input.next(), token_loss());
      backup.after(step);
      if (step + 1 == start.dies_after) throw std::runtime_error("died");
    }
    result.hash = strategy.weights_hash();
    backup.done();
  }

  // Returns what rank 0 saw.
  Result run(const Start& start) const {
    Result result;
    net::SimNetwork network(start.ranks);
    network.run([&](int rank) {
      Result mine;
      try {
        Job job(network.transport(rank), {}, nullptr);
        loop(job, place_.string(), start, mine);
      } catch (const Error& error) {
        mine.error = describe(std::current_exception()).sentence;
      } catch (const std::exception& error) {
        mine.error = error.what();
      }
      if (rank == 0) result = mine;
    });
    return result;
  }

  const fs::path place_ =
      fs::path(::testing::TempDir()) / ("backup_" + std::to_string(::getpid())) / "place";
};

TEST_F(BackupTest, AKilledRunGoesOnWithTheSameBitsAndAFinishedOneLeavesNoBackup) {
  const Result whole = run({.ranks = 1});
  EXPECT_EQ(whole.error, "");
  EXPECT_EQ(whole.first, 0);
  EXPECT_FALSE(fs::exists(place_));
  EXPECT_EQ(run({.dies_after = 8}).error, "died");
  EXPECT_TRUE(fs::exists(place_ / "step-00000006"));
  EXPECT_FALSE(fs::exists(place_ / "step-00000003")) << "one backup is kept";
  EXPECT_EQ(run({.ranks = 3, .dies_after = 9}).first, 6);
  const Result last = run({.ranks = 2, .sync = "zero3"});
  EXPECT_EQ(last.first, 9);
  EXPECT_EQ(last.hash, whole.hash);
  EXPECT_FALSE(fs::exists(place_));
  EXPECT_EQ(run({}).first, 0) << "a training that was done begins anew";
}

TEST_F(BackupTest, ABackupOfAnotherTrainingIsRefusedAndStays) {
  run({.dies_after = 5, .identity = "seed = 1\n"});
  const Result wider = run({.width = 9, .identity = "seed = 1\n"});
  EXPECT_THAT(wider.error, AllOf(HasSubstr((place_ / "step-00000003").string()),
                                 HasSubstr("[8, 6]"), HasSubstr("[9, 6]")));
  EXPECT_THAT(run({.identity = "seed = 2\n"}).error,
              AllOf(HasSubstr("is of another job"), HasSubstr("seed = 1"), HasSubstr("seed = 2")));
  EXPECT_TRUE(fs::exists(place_ / "step-00000003"));
  EXPECT_EQ(run({.identity = "seed = 1\n"}).first, 3);
}

TEST_F(BackupTest, OtherFilesInTheFolderStay) {
  fs::create_directories(place_);
  std::ofstream(place_ / "notes.txt") << "mine";
  EXPECT_EQ(run({}).error, "");
  EXPECT_TRUE(fs::exists(place_ / "notes.txt"));
  EXPECT_EQ(std::distance(fs::directory_iterator(place_), fs::directory_iterator()), 1);
}

// A storage that removes nothing more.
class Hoarder final : public storage::Storage {
 public:
  std::unique_ptr<storage::Draft> begin(const std::string& path, const std::string& mark) override {
    return inner_->begin(path, mark);
  }
  std::unique_ptr<storage::Draft> join(const std::string& path, const std::string& mark) override {
    return inner_->join(path, mark);
  }
  std::unique_ptr<storage::InputFile> open(const std::string& path) override {
    return inner_->open(path);
  }
  void put(const std::string& path, const std::string& text) override { inner_->put(path, text); }
  std::vector<std::string> list(const std::string& path) override { return inner_->list(path); }
  void remove(const std::string& path) override {
    throw ResourceError("cannot remove " + path, {.operation = "test"});
  }
  std::shared_ptr<void> lock(const std::string& path) override { return inner_->lock(path); }
  bool is_remote() const noexcept override { return false; }

 private:
  const std::shared_ptr<storage::Storage> inner_ = storage::folder_storage();
};

TEST_F(BackupTest, ATrainingIsDoneAlsoIfItsBackupCannotBeRemoved) {
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(run({.storage = std::make_shared<Hoarder>()}).error, "");
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              HasSubstr("the backup in " + place_.string() + " is not removed: "));
}

TEST_F(BackupTest, BackupsWithoutStepsBetweenAreRefused) {
  net::SimNetwork network(1);
  network.run([&](int rank) {
    Job job(network.transport(rank), {}, nullptr);
    EXPECT_THROW(BackupAndRestore(job, place_.string(), {.every = 0}), ConfigError);
  });
}

}  // namespace
}  // namespace trireme
