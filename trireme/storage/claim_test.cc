// Two jobs on one folder: one hung, lost its lock, and goes on beside its successor.
#include "trireme/storage/claim.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <semaphore>
#include <thread>

#include "trireme/observe/folder_lock.h"
#include "trireme/storage/folder.h"
#include "trireme/storage/forwarding_file_system_test.h"

namespace trireme::claim_test {
namespace {

namespace fs = std::filesystem;
using storage::AskedFileSystem;
using storage::CheckpointFolder;
using storage::Claim;
using storage::FileWriter;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// A job on a host that cannot be seen from here.
observe::LockHolder job(const std::string& host) {
  observe::LockHolder holder = observe::LockHolder::this_process();
  holder.host = holder.machine = holder.boot = host;
  return holder;
}

// Writes on a thread of its own, and stands still before its `at`-th operation.
class HungWriter {
 public:
  HungWriter(int at, std::function<void(std::shared_ptr<storage::FileSystem>)> write)
      : thread_([this, at, write = std::move(write)] {
          const auto files = std::make_shared<AskedFileSystem>();
          files->asked = [&, count = 0]() mutable {
            if (count++ != at) return;
            hung_ = true;
            standing_.release();
            go_on_.acquire();
          };
          write(files);
          standing_.release();
        }) {
    standing_.acquire();
  }
  ~HungWriter() { go_on(); }
  /// Whether it had so many operations.
  bool hung() const noexcept { return hung_; }
  /// Returns when it has ended.
  void go_on() {
    go_on_.release();
    if (thread_.joinable()) thread_.join();
  }

 private:
  bool hung_ = false;
  std::binary_semaphore standing_{0};
  std::counting_semaphore<> go_on_{0};
  std::thread thread_;
};

class ClaimTest : public ::testing::Test {
 protected:
  ClaimTest() { fs::create_directory(directory_); }
  ~ClaimTest() override { fs::remove_all(directory_); }

  CheckpointFolder folder(
      std::shared_ptr<storage::FileSystem> files = storage::local_file_system()) const {
    return {std::move(files), directory_.string()};
  }
  static std::map<std::string, FileWriter> files(const std::string& who) {
    const FileWriter file = [who](const auto& sink) {
      for (int i = 0; i < 2; ++i) sink(std::as_bytes(std::span(who)));
    };
    return {{storage::kModelFile, file}, {storage::kStateFile, file}};
  }
  static void write(CheckpointFolder folder, std::int64_t step, const std::string& who) {
    folder.write({.step = step}, files(who), 9);
  }
  void put_lock(const observe::LockHolder& holder) const {
    std::ofstream(directory_ / "next") << holder.to_text();
    fs::rename(directory_ / "next", directory_ / ".lock");
  }
  std::shared_ptr<const Claim> claim() const {
    return Claim::of({storage::folder_storage(), directory_.string()});
  }
  void expect_whole() const {
    for (const std::int64_t step : folder().steps()) {
      folder().verify(step);
      EXPECT_EQ(folder().read_text(step, storage::kModelFile),
                folder().read_text(step, storage::kStateFile));
    }
  }

  // In memory where there is such a folder: writing a disk takes long.
  const fs::path directory_ =
      fs::path(fs::is_directory("/dev/shm") ? "/dev/shm" : ::testing::TempDir()) /
      ("trireme_claim_" + std::to_string(::getpid()));
};

// The older job hangs before each of its operations, and goes on before each of the newer one's.
TEST_F(ClaimTest, TwoJobsDoNotMixTheirFilesAtAnyPoint) {
  int points = 0;
  for (int older = 0, newer = 0;; ++newer) {
    SCOPED_TRACE("hangs before operation " + std::to_string(older) + ", goes on before operation " +
                 std::to_string(newer));
    fs::remove_all(directory_);
    const auto try_to_write = [&](const std::shared_ptr<storage::FileSystem>& files,
                                  const std::string& who) {
      try {
        write(folder(files), 10, who);
      } catch (const Error&) {  // the other one has the step, or has swept the draft away
      }
    };
    HungWriter hung(older, [&](const auto& files) { try_to_write(files, "older"); });
    if (!hung.hung()) break;
    const auto files = std::make_shared<AskedFileSystem>();
    bool gone_on = false;
    files->asked = [&, count = 0]() mutable {
      if (count++ != newer) return;
      gone_on = true;
      hung.go_on();
    };
    try_to_write(files, "newer");
    hung.go_on();
    expect_whole();
    ++points;
    if (gone_on) continue;
    ++older;
    newer = -1;
  }
  EXPECT_GT(points, 200);
}

TEST_F(ClaimTest, AJobThatHasLostItsLockWritesNothingAtAnyPoint) {
  for (int at = 0;; ++at) {
    SCOPED_TRACE(at);
    fs::remove_all(directory_);
    fs::create_directory(directory_);
    put_lock(job("here"));
    const auto files = std::make_shared<AskedFileSystem>();
    CheckpointFolder mine = folder(files);
    mine.guard(claim());
    bool lost = false;
    files->asked = [&, count = 0]() mutable {
      if (count++ != at) return;
      lost = true;
      put_lock(job("elsewhere"));
    };
    try {
      write(mine, 10, "mine");
      // The last look is before the manifest; the checkpoint is whole.
      EXPECT_TRUE(!lost || at > 10);
      EXPECT_THAT(folder().steps(), ElementsAre(10));
    } catch (const ConfigError& error) {
      EXPECT_TRUE(lost);
      EXPECT_THAT(error.what(), AllOf(HasSubstr(directory_.string() + " is in use by process "),
                                      HasSubstr(" on host elsewhere, since "),
                                      HasSubstr("took it over while this job gave no sign")));
      EXPECT_THAT(folder().steps(), IsEmpty());
    }
    expect_whole();
    if (!lost) break;
  }
  EXPECT_THROW(folder().write({.step = 10}, files("again"), 9), ConfigError) << "it is there";
}

TEST_F(ClaimTest, WithoutALockNobodyIsRefused) {
  EXPECT_FALSE(claim());
  put_lock(job("here"));
  CheckpointFolder mine = folder();
  mine.guard(claim());
  fs::remove(directory_ / ".lock");  // by hand
  write(mine, 1, "mine");
  put_lock(job("elsewhere"));
  EXPECT_THROW(write(mine, 2, "mine"), ConfigError);
  EXPECT_THROW(mine.remove_all(), ConfigError);
  EXPECT_THAT(folder().steps(), ElementsAre(1));
}

TEST_F(ClaimTest, AJobThatHasLostItsLockRemovesNothing) {
  put_lock(job("here"));
  CheckpointFolder mine = folder();
  mine.guard(claim());
  put_lock(job("elsewhere"));
  write(folder(), 10, "theirs");
  folder().show_mark();
  EXPECT_THROW(mine.remove(10), ConfigError);
  EXPECT_THROW(mine.show_mark(), ConfigError);
  EXPECT_THROW(mine.hide_mark(), ConfigError);
  EXPECT_THAT(storage::local_file_system()->list(directory_.string()),
              ElementsAre(".lock", ".writers", "latest", "step-00000010"));
}

TEST_F(ClaimTest, AJobWhoseSuccessorHasEndedSavesNoOlderStep) {
  put_lock(job("here"));
  CheckpointFolder mine = folder();
  mine.guard(claim());
  write(mine, 10, "mine");
  write(folder(), 20, "theirs");
  fs::remove(directory_ / ".lock");
  EXPECT_THROW(write(mine, 15, "mine"), ConfigError);
  EXPECT_THAT(folder().steps(), ElementsAre(10, 20));
  EXPECT_EQ(folder().read_text(20, storage::kModelFile), "theirstheirs");
}

// Over S3 a lock is read in two requests, and its holder writes it anew every few seconds.
class RewrittenLock final : public storage::ForwardingFileSystem {
 public:
  explicit RewrittenLock(int times) : times_(times) {}
  std::unique_ptr<storage::InputFile> open(const std::string& path) override {
    struct Replaced final : storage::InputFile {
      std::int64_t size() const noexcept override { return 9; }
      void read(std::int64_t, std::span<std::byte>) override {
        throw CheckpointError("it was replaced while it was read", {});
      }
    };
    if (path.ends_with("/.lock") && times_-- > 0) return std::make_unique<Replaced>();
    return ForwardingFileSystem::open(path);
  }

 private:
  int times_;
};

TEST_F(ClaimTest, ALockThatIsWrittenAnewMeanwhileIsReadAgain) {
  put_lock(job("here"));
  const auto look = [&](int times) {
    return Claim::of(
        {storage::folder_storage(std::make_shared<RewrittenLock>(times)), directory_.string()});
  };
  ASSERT_TRUE(look(1));
  EXPECT_EQ(look(1)->digest(), claim()->digest());
  EXPECT_THROW(look(1000), ResourceError);
}

// The process is stopped while it writes a file, for so long that another job takes the folder over.
TEST_F(ClaimTest, AProcessThatIsStoppedAndGoesOnLeavesTheFolderToItsSuccessor) {
  put_lock(job("elsewhere"));
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    CheckpointFolder mine = folder();
    mine.guard(claim());
    write(mine, 1, "mine");
    auto stopping = files("mine");
    stopping.at(storage::kStateFile).write = [](const FileWriter::Sink& sink) {
      ::raise(SIGSTOP);
      sink(std::as_bytes(std::span("mine", 4)));
    };
    try {
      mine.write({.step = 2}, stopping, 9);
    } catch (const ConfigError&) {
      std::_Exit(2);
    } catch (...) {
    }
    std::_Exit(1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, WUNTRACED), child);
  ASSERT_TRUE(WIFSTOPPED(status));
  {
    const observe::FolderLock lock(directory_.string(),
                                   {.shared = true, .patience = std::chrono::milliseconds(100)});
    CheckpointFolder theirs = folder();
    theirs.guard(claim());
    write(theirs, 2, "theirs");
    ::kill(child, SIGCONT);
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    write(theirs, 3, "theirs");
  }
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 2);
  EXPECT_THAT(folder().steps(), ElementsAre(1, 2, 3));
  expect_whole();
  EXPECT_EQ(folder().read_text(2, storage::kModelFile), "theirstheirs");
  EXPECT_THAT(storage::local_file_system()->list(directory_.string()),
              ElementsAre("latest", "step-00000001", "step-00000002", "step-00000003"));
}

}  // namespace
}  // namespace trireme::claim_test
