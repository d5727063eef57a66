// Saves that go on while the training does, through a storage that tests hold up, break and mend.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>

#include "trireme/base/error.h"
#include "trireme/base/waiter.h"
#include "trireme/checkpoint/checkpointer.h"
#include "trireme/format/safetensors.h"
#include "trireme/job/job.h"
#include "trireme/storage/folder.h"
#include "trireme/storage/forwarding_file_system_test.h"
#include "trireme/testing/refused_threads.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;
using storage::FileSystem;
using storage::OutputFile;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// A file system whose files are made when a test lets them, or not at all.
class Gate final : public storage::ForwardingFileSystem {
 public:
  explicit Gate(std::shared_ptr<Waiter> waiter) : waiter_(std::move(waiter)) {}

  std::unique_ptr<storage::OutputFile> create(const std::string& path) override {
    ++creates;
    waiter_->wake();
    waiter_->wait_until([this] { return is_open.load(); }, TimePoint::max());
    if (failing) {
      ++failures;
      waiter_->wake();
      throw ResourceError("the disk is full", {.operation = "test"});
    }
    return ForwardingFileSystem::create(path);
  }

  void set_open(bool now) {
    is_open = now;
    waiter_->wake();
  }
  void wait_for_creates(int count) {
    waiter_->wait_until([&] { return creates >= count; }, TimePoint::max());
  }

  void wait_for_failures(int count) {
    waiter_->wait_until([&] { return failures >= count; }, TimePoint::max());
  }

  std::atomic<int> creates{0}, failures{0};
  std::atomic<bool> is_open{true}, failing{false};

 private:
  const std::shared_ptr<Waiter> waiter_;
};

class Weight final : public Saveable {
 public:
  std::vector<NamedShard> state() override { return {{"w", DType::F32, {2}, 0, 2, weight}}; }
  std::string metadata() const override { return "{}"; }
  void restored(const std::string&) override {}
  at::Tensor weight = at::zeros({2});
};

class BackgroundSaveTest : public ::testing::Test {
 protected:
  static Job& job() {
    static char name[] = "test";
    static char* arguments[] = {name, nullptr};
    static Job job(1, arguments);
    return job;
  }
  void SetUp() override { fs::remove_all(directory_); }
  void TearDown() override { fs::remove_all(directory_); }

  std::unique_ptr<Checkpointer> make(Duration patience, long every = 1) {
    auto made = std::make_unique<Checkpointer>(
        job(), directory_.string(),
        CheckpointerOptions{.every = every,
                            .keep = 9,
                            .storage = storage::folder_storage(gate_),
                            .patience = patience});
    made->add("train", weight_);
    return made;
  }
  void step(Checkpointer& checkpointer, long step) {
    weight_.weight.fill_(static_cast<double>(step + 1));
    checkpointer.after(step);
  }
  std::vector<std::int64_t> steps() const { return folder().steps(); }
  storage::CheckpointFolder folder() const {
    return {storage::local_file_system(), directory_.string()};
  }
  float saved_weight(std::int64_t step) const {
    folder().verify(step);
    const format::SafetensorsFile file(folder().path_of(step) + "/" + storage::kModelFile);
    return *reinterpret_cast<const float*>(file.find("w")->bytes.data());
  }

  const fs::path directory_ =
      fs::path(::testing::TempDir()) / ("background_" + std::to_string(::getpid()));
  const std::shared_ptr<Gate> gate_ = std::make_shared<Gate>(job().waiter());
  Weight weight_;
};

constexpr Duration kLong = std::chrono::minutes(10);

TEST_F(BackgroundSaveTest, TheTrainingGoesOnWhileTheCopyIsWritten) {
  const auto checkpointer = make(kLong, 2);
  gate_->set_open(false);
  step(*checkpointer, 0);
  step(*checkpointer, 1);  // a save begins
  gate_->wait_for_creates(1);
  step(*checkpointer, 2);  // the weights are other ones now
  EXPECT_THAT(steps(), IsEmpty());
  gate_->set_open(true);
  checkpointer->wait();
  EXPECT_THAT(steps(), ElementsAre(2));
  EXPECT_EQ(saved_weight(2), 2);
}

TEST_F(BackgroundSaveTest, ASaveWaitsForTheOneBefore) {
  const auto checkpointer = make(kLong);
  gate_->set_open(false);
  step(*checkpointer, 0);
  gate_->wait_for_creates(1);
  job().waiter()->run_at(job().waiter()->now() + std::chrono::milliseconds(20),
                         [this] { gate_->set_open(true); });
  step(*checkpointer, 1);
  EXPECT_FALSE(steps().empty()) << "the first is complete before the second begins";
  checkpointer->wait();
  EXPECT_THAT(steps(), ElementsAre(1, 2));
}

TEST_F(BackgroundSaveTest, TheDestructorWaits) {
  gate_->set_open(false);
  {
    const auto checkpointer = make(kLong);
    step(*checkpointer, 0);
    gate_->wait_for_creates(1);
    gate_->set_open(true);
  }
  EXPECT_THAT(steps(), ElementsAre(1));
}

sigset_t blocked_signals() {
  sigset_t blocked;
  pthread_sigmask(SIG_SETMASK, nullptr, &blocked);
  return blocked;
}

// The save has not begun then: neither the next one nor the destructor waits for it.
TEST_F(BackgroundSaveTest, ARefusedThreadIsAnErrorWithTheCode170) {
  auto checkpointer = make(kLong, 2);
  step(*checkpointer, 0);  // starts the thread that holds the folder's lock
  const sigset_t before = blocked_signals();
  const auto refused = [&](long number) {
    const testing::RefusedThreads no_threads(0);
    try {
      step(*checkpointer, number);
    } catch (...) {
      return describe(std::current_exception()).exit_code;
    }
    return 0;
  };
  EXPECT_EQ(refused(1), 170);
  const sigset_t after = blocked_signals();
  EXPECT_EQ(sigismember(&after, SIGTERM), sigismember(&before, SIGTERM));
  step(*checkpointer, 2);
  step(*checkpointer, 3);
  checkpointer->wait();
  EXPECT_THAT(steps(), ElementsAre(4));
  EXPECT_EQ(saved_weight(4), 4);
  step(*checkpointer, 4);
  EXPECT_EQ(refused(5), 170);
  checkpointer.reset();
}

// A training may free something and save again at its end.
TEST_F(BackgroundSaveTest, ASaveThatCouldNotBeginIsNotDone) {
  const auto checkpointer = make(kLong, 100);
  step(*checkpointer, 0);
  {
    const testing::RefusedThreads no_threads(0);
    EXPECT_THROW(checkpointer->save(1), std::system_error);
  }
  checkpointer->save_and_wait(1);
  EXPECT_THAT(steps(), ElementsAre(1));
}

TEST_F(BackgroundSaveTest, AFullDiskIsTriedAgainWithTheSameWeights) {
  const auto checkpointer = make(kLong, 100);
  gate_->failing = true;
  ::testing::internal::CaptureStderr();
  weight_.weight.fill_(7);
  checkpointer->save(7);
  gate_->wait_for_creates(1);
  weight_.weight.fill_(8);
  checkpointer->after(7);  // the training goes on
  gate_->wait_for_creates(2);
  gate_->failing = false;
  checkpointer->save_and_wait(7);
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(said, HasSubstr("the checkpoint of step 7 is not saved: the disk is full. The "
                              "training goes on and tries again"));
  EXPECT_THAT(said, HasSubstr("the checkpoint of step 7 is saved; the storage had failed for"));
  EXPECT_EQ(said.find("not saved"), said.rfind("not saved")) << "told once: " << said;
  EXPECT_EQ(saved_weight(7), 7);
}

TEST_F(BackgroundSaveTest, ANewerCheckpointTakesThePlaceOfOneThatWaits) {
  const auto checkpointer = make(kLong);
  gate_->failing = true;
  step(*checkpointer, 0);
  gate_->wait_for_creates(1);
  for (long next = 1; gate_->creates < 2; ++next) step(*checkpointer, next);
  gate_->failing = false;
  checkpointer->wait();
  ASSERT_EQ(steps().size(), 1u);
  EXPECT_GT(steps().back(), 1);
}

TEST_F(BackgroundSaveTest, ATryThatTakesLongHoldsUpNoStep) {
  const auto checkpointer = make(kLong);
  gate_->failing = true;
  step(*checkpointer, 0);
  gate_->wait_for_failures(1);
  gate_->set_open(false);
  gate_->wait_for_creates(2);  // the second try hangs
  step(*checkpointer, 1);      // left out
  gate_->failing = false;
  gate_->set_open(true);
  checkpointer->wait();
  EXPECT_THAT(steps(), ElementsAre(1));
  step(*checkpointer, 2);
  checkpointer->wait();
  EXPECT_THAT(steps(), ElementsAre(1, 3));
}

TEST_F(BackgroundSaveTest, WithoutPatienceTheNextCallThrowsWithTheCode170) {
  for (const bool asks : {false, true}) {
    const auto checkpointer = make({}, 1);
    gate_->failing = true;
    try {
      step(*checkpointer, 0);
      gate_->wait_for_creates(1);
      if (asks) checkpointer->save_and_wait(1);
      for (long next = 1;; ++next) step(*checkpointer, next);
    } catch (const ResourceError& error) {
      EXPECT_EQ(error.exit_code(), 170);
      EXPECT_THAT(error.what(), HasSubstr("the disk is full"));
    }
    EXPECT_THAT(steps(), IsEmpty());
  }
}

TEST_F(BackgroundSaveTest, ThePatienceEnds) {
  const auto checkpointer = make(std::chrono::milliseconds(1), 100);
  gate_->failing = true;
  checkpointer->save(1);
  EXPECT_THROW(checkpointer->wait(), ResourceError);
  EXPECT_GE(gate_->creates, 2) << "it was tried again";
}

// Else the next start would go on near the end of a training that is done.
TEST_F(BackgroundSaveTest, ABackupGoesAlsoIfTheLastOneFailed) {
  setenv("TRIREME_CHECKPOINT_PATIENCE", "0", 1);
  BackupAndRestore backup(job(), directory_.string(),
                          {.every = 1, .storage = storage::folder_storage(gate_)});
  unsetenv("TRIREME_CHECKPOINT_PATIENCE");
  backup.add("train", weight_);
  EXPECT_EQ(backup.restore(), 0);
  backup.after(0);
  while (steps().empty()) job().waiter()->sleep(std::chrono::milliseconds(1));
  gate_->failing = true;
  backup.after(1);
  gate_->wait_for_failures(1);
  backup.done();
  EXPECT_THAT(steps(), IsEmpty());
}

TEST_F(BackgroundSaveTest, TheBestByValidationStays) {
  const auto save = [&](Checkpointer& checkpointer, long steps_done, double loss) {
    checkpointer.validated(loss);
    checkpointer.save(steps_done);
  };
  {
    Checkpointer checkpointer(job(), directory_.string(), {.every = 0, .keep = 1, .keep_best = 1});
    checkpointer.add("train", weight_);
    save(checkpointer, 1, 3);
    save(checkpointer, 2, 1);
    save(checkpointer, 3, 2);
    save(checkpointer, 4, 2);
  }
  EXPECT_THAT(steps(), ElementsAre(2, 4));
  Checkpointer again(job(), directory_.string(), {.every = 0, .keep = 1, .keep_best = 1});
  again.add("train", weight_);
  EXPECT_EQ(again.resume(), 4) << "the newest one, not the best";
  again.save(5);
  again.wait();
  EXPECT_THAT(steps(), ElementsAre(2, 5)) << "the losses are in the manifests";
}

// A loss is that of the weights that were validated, not of those of later steps.
TEST_F(BackgroundSaveTest, WeightsThatWereNotValidatedAreNotAmongTheBest) {
  Checkpointer checkpointer(job(), directory_.string(), {.every = 1, .keep = 1, .keep_best = 2});
  checkpointer.add("train", weight_);
  for (long step = 0; step < 6; ++step) {
    if (step % 2 == 0) checkpointer.validated(static_cast<double>(step + 1));
    checkpointer.after(step);
    checkpointer.wait();
  }
  EXPECT_THAT(steps(), ElementsAre(1, 3, 6));
}

}  // namespace
}  // namespace trireme
