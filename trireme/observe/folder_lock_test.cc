#include "trireme/observe/folder_lock.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <thread>

#include "trireme/base/error.h"
#include "trireme/observe/machine.h"
#include "trireme/testing/refused_threads.h"
#include "trireme/testing/run_processes.h"

namespace trireme::observe {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::HasSubstr;

class FolderLockTest : public ::testing::Test {
 protected:
  FolderLockTest() {
    std::string pattern = ::testing::TempDir() + "lock-XXXXXX";
    directory_ = mkdtemp(pattern.data());
  }
  ~FolderLockTest() override { fs::remove_all(directory_); }

  std::string refusal(FolderLockOptions options = {}) const {
    try {
      const FolderLock lock(directory_, options);
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "taken";
  }
  void leave(const LockHolder& holder) const { leave(holder.to_text()); }
  void leave(const std::string& text) const { std::ofstream(directory_ + "/.lock") << text; }
  bool is_empty() const { return fs::is_empty(directory_); }
  // Eight take the folder at the same moment.
  void many_at_once(const FolderLockOptions& options) const {
    std::atomic<int> holders{0}, most{0}, taken{0}, refused{0};
    std::vector<std::thread> threads;
    for (int i = 0; i < 8; ++i)
      threads.emplace_back([&] {
        try {
          const FolderLock lock(directory_, options);
          const int now = ++holders;
          for (int seen = most; seen < now && !most.compare_exchange_weak(seen, now);) {
          }
          ++taken;
          std::this_thread::yield();
          --holders;
        } catch (const ConfigError&) {
          ++refused;
        }
      });
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(most, 1);
    EXPECT_EQ(taken + refused, 8);
    EXPECT_GE(taken, 1);
    EXPECT_TRUE(is_empty());
  }

  std::string directory_;
};

LockHolder elsewhere() {
  return {.host = "node7",
          .machine = "m7",
          .boot = "b7",
          .processes = "pid:[1]",
          .process = 4711,
          .start_time = 12,
          .since = "2026-01-02 03:04:05 UTC"};
}

LockHolder ended() {
  LockHolder holder = LockHolder::this_process();
  holder.start_time -= 1;  // the number of an earlier process
  return holder;
}

TEST_F(FolderLockTest, OneHolderWhomTheOthersName) {
  {
    const FolderLock lock(directory_);
    EXPECT_THAT(
        refusal(),
        AllOf(HasSubstr(directory_ + " is in use by process " + std::to_string(getpid())),
              HasSubstr("on host " + host_name()), HasSubstr("since 20"), HasSubstr("stop it")));
    EXPECT_EQ(fs::exists(directory_ + "/.lock"), true);
  }
  EXPECT_TRUE(is_empty());
  EXPECT_EQ(refusal(), "taken");
}

TEST_F(FolderLockTest, AProcessThatHasEndedHoldsNothing) {
  leave(ended());
  std::ofstream(directory_ + "/.lock.node1.77.8.0") << "left by a kill before its name was given";
  EXPECT_EQ(refusal(), "taken");
  EXPECT_TRUE(is_empty());
}

TEST_F(FolderLockTest, AMachineThatWasStartedAnewHoldsNothing) {
  LockHolder before = LockHolder::this_process();
  before.boot = "another";
  before.machine = "mine";
  LockHolder self = LockHolder::this_process();
  self.machine = "mine";
  leave(before);
  EXPECT_EQ(refusal({.self = self, .shared = true, .patience = 1h}), "taken");
}

// A local disk that another kernel used: that kernel does not use it any more.
TEST_F(FolderLockTest, ALocalDiskHasOneKernel) {
  leave(elsewhere());
  EXPECT_EQ(refusal({.shared = false, .patience = 1h}), "taken");
}

TEST_F(FolderLockTest, AnotherHostThatTouchesItsFileHoldsIt) {
  leave(elsewhere());
  std::atomic<bool> stop{false};
  std::thread other([&] {  // like a holder on that host
    const int file = ::open((directory_ + "/.lock").c_str(), O_RDWR | O_CLOEXEC);
    while (!stop) {
      ::futimens(file, nullptr);
      std::this_thread::sleep_for(5ms);
    }
    ::close(file);
  });
  EXPECT_THAT(refusal({.shared = true, .patience = 1h}),
              AllOf(HasSubstr("process 4711 on host node7, since 2026-01-02 03:04:05 UTC")));
  stop = true;
  other.join();
  EXPECT_TRUE(fs::exists(directory_ + "/.lock"));
}

TEST_F(FolderLockTest, AnotherHostThatDoesNotTouchItsFileHoldsNothing) {
  leave(elsewhere());
  EXPECT_EQ(refusal({.shared = true, .patience = 50ms}), "taken");
  EXPECT_TRUE(is_empty());
}

TEST_F(FolderLockTest, AHolderOnASharedDiskTouchesItsFile) {
  const FolderLock lock(directory_, {.shared = true, .touch_every = 2ms});
  const fs::path file = directory_ + "/.lock";
  for (int round = 0; round < 3; ++round) {
    const fs::file_time_type old{};
    fs::last_write_time(file, old);
    while (fs::last_write_time(file) == old) std::this_thread::sleep_for(1ms);
  }
}

// Containers of one kernel: process numbers mean nothing across them; the open file decides.
TEST_F(FolderLockTest, BetweenContainersTheOpenFileDecides) {
  LockHolder container = LockHolder::this_process();
  container.processes = "pid:[99]";
  container.process = 1;
  {
    const FolderLock lock(directory_, {.self = container});
    EXPECT_THAT(refusal(), HasSubstr("process 1 on host"));
  }
  leave(container);  // killed
  EXPECT_EQ(refusal({.shared = true, .patience = 1h}), "taken");
}

TEST_F(FolderLockTest, AWatchSeesTheEndOfAHolderInAnotherContainer) {
  LockHolder container = LockHolder::this_process();
  container.processes = "pid:[99]";
  LockWatch watch(directory_, {.shared = true, .patience = 1h});
  EXPECT_FALSE(watch.is_locked());
  {
    const FolderLock lock(directory_, {.self = container});
    EXPECT_TRUE(watch.is_locked());
    EXPECT_TRUE(is_locked(directory_));
  }
  leave(container);  // killed
  EXPECT_FALSE(watch.is_locked());
  EXPECT_FALSE(is_locked(directory_));
}

TEST_F(FolderLockTest, AWatchSeesTheEndOfAHolderOnAnotherHost) {
  leave(elsewhere());
  const std::string file = directory_ + "/.lock";
  LockWatch watch(directory_, {.shared = true, .patience = 50ms});
  const TimePoint begin = steady_now();
  while (steady_now() - begin < 150ms) {  // it touches its file
    fs::last_write_time(file, fs::file_time_type::clock::now());
    ASSERT_TRUE(watch.is_locked());
    std::this_thread::sleep_for(1ms);
  }
  const TimePoint killed = steady_now();
  while (watch.is_locked()) ASSERT_LT(steady_now() - killed, 1min);
  EXPECT_TRUE(fs::exists(file));
}

TEST_F(FolderLockTest, AFileThatNamesNobodyIsTakenAfterAWhile) {
  for (const char* text : {"", "trireme-lock 1\nhost a\n", "who knows"}) {
    leave(text);
    EXPECT_EQ(refusal({.shared = false, .grace = 30ms}), "taken") << text;
  }
  std::string torn = elsewhere().to_text();
  for (std::size_t size = 0; size < torn.size(); ++size)
    EXPECT_FALSE(LockHolder::from_text(torn.substr(0, size))) << size;
  EXPECT_EQ(LockHolder::from_text(torn), elsewhere());
}

// Like ranks whose launcher was killed: the kernel ends them, and they end a little later.
TEST_F(FolderLockTest, ADescriptorThatLivesOnKeepsTheFolder) {
  leave(ended());
  const int rank = ::open((directory_ + "/.lock").c_str(), O_RDWR | O_CLOEXEC);
  struct flock whole {};
  whole.l_type = F_WRLCK;
  ASSERT_EQ(::fcntl(rank, F_OFD_SETLK, &whole), 0);
  EXPECT_THAT(refusal({.grace = 30ms}), HasSubstr("a process that it started still runs"));
  std::thread ends([&] { ::close(rank); });
  EXPECT_EQ(refusal({.grace = 1h}), "taken");
  ends.join();
}

TEST_F(FolderLockTest, OfManyAtOnceOneHasIt) {
  for (int round = 0; round < 20; ++round) {
    SCOPED_TRACE(round);
    if (round % 2 == 1) leave(ended());  // then all of them try to take it over
    many_at_once({});
  }
}

TEST_F(FolderLockTest, OfManyAtOnceOneHasItThoughFilesHaveNoLocks) {
  for (int round = 0; round < 50; ++round) {
    SCOPED_TRACE(round);
    leave(ended());
    many_at_once({.shared = true, .open_file_locks = false});
  }
}

// The process that was about to replace the lock of one that had ended was killed, too.
TEST_F(FolderLockTest, ATakeoverThatWasCutShortIsTakenOver) {
  leave(ended());
  std::ofstream(directory_ + "/.lock.after") << ended().to_text();
  std::ofstream(directory_ + "/.lock.after.after") << "torn";
  EXPECT_EQ(refusal({.shared = true, .patience = 30ms, .grace = 30ms}), "taken");
  EXPECT_TRUE(is_empty());
}

TEST_F(FolderLockTest, AProcessThatIsAboutToHaveTheLockIsWaitedFor) {
  leave(ended());
  const std::string after = directory_ + "/.lock.after";
  std::ofstream(after) << LockHolder::this_process().to_text();
  EXPECT_THAT(refusal({.grace = 30ms}), HasSubstr("is in use by process"));
  std::thread gives_up([&] { fs::remove(after); });
  EXPECT_EQ(refusal({.grace = 1h}), "taken");
  gives_up.join();
}

TEST_F(FolderLockTest, ALinkInPlaceOfTheLockIsAResourceError) {
  fs::create_symlink("nowhere", directory_ + "/.lock");
  EXPECT_THROW(FolderLock lock(directory_), ResourceError);
}

TEST_F(FolderLockTest, AFolderThatCannotBeWrittenIsAResourceError) {
  try {
    const FolderLock lock(directory_ + "/nowhere");
    FAIL();
  } catch (const ResourceError& error) {
    EXPECT_THAT(error.what(), HasSubstr("nowhere"));
  }
}

TRIREME_PROCESS(holds) {
  const FolderLock lock(argv[1]);
  std::printf("holds\n");
  std::fflush(stdout);
  for (;;) pause();
}

bool has_ended(pid_t pid) {
  siginfo_t info{};
  return waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOWAIT) == 0;
}

// Another process is named. Once killed it holds nothing, even before its parent has waited for it.
TEST_F(FolderLockTest, AKilledProcessIsNotWaitedFor) {
  std::string while_it_runs, after;
  testing::ProcessOptions options;
  options.arguments = {directory_};
  options.on_line = [&](int, std::string_view line, const testing::RunningProcesses& running) {
    if (line.find("holds") == std::string_view::npos) return;
    const pid_t holder = running.pids[0];
    while_it_runs = refusal();
    EXPECT_THAT(while_it_runs, HasSubstr("process " + std::to_string(holder) + " on host"));
    testing::send_signal(holder, SIGKILL);
    ASSERT_TRUE(has_ended(holder));
    after = refusal();
  };
  const testing::ProcessRun run = testing::run_processes(1, "holds", options);
  EXPECT_EQ(run.exit_code, 128 + SIGKILL) << run.describe();
  EXPECT_THAT(while_it_runs, HasSubstr("is in use by")) << run.describe();
  EXPECT_EQ(after, "taken") << run.describe();
}

TEST_F(FolderLockTest, ARefusedThreadLeavesTheSignalsAndTheFolderAsTheyWere) {
  sigset_t before, after;
  pthread_sigmask(SIG_SETMASK, nullptr, &before);
  {
    const testing::RefusedThreads no_threads(0);
    EXPECT_THROW(FolderLock(directory_, {.shared = true}), std::system_error);
  }
  pthread_sigmask(SIG_SETMASK, nullptr, &after);
  EXPECT_EQ(sigismember(&after, SIGTERM), sigismember(&before, SIGTERM));
  EXPECT_TRUE(is_empty());
}

}  // namespace
}  // namespace trireme::observe
