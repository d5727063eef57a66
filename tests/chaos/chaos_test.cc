// Ranks that die, sleep, stop, throw or leave: no rank hangs, the first failure is named, and
// nothing is left behind. Times are scaled down here; the ctest entry tests/chaos/chaos.full (label
// soak) runs the same tests in full.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <thread>

#include "trireme/base/error.h"
#include "trireme/base/event.h"
#include "trireme/job.h"
#include "trireme/testing/run_processes.h"

namespace trireme {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::ProcessOptions;
using testing::ProcessRun;
using testing::run_processes;
using testing::RunningProcesses;
using testing::send_signal;

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != text.npos;
}

// TRIREME_CHAOS_TIMEOUT and _SLEEP set the times in seconds: 2 and 6 here, 30 and 90 in soak.
int setting(const char* name, int standard) {
  const char* text = std::getenv(name);
  return text ? std::atoi(text) : standard;
}
ProcessOptions scaled() {
  ProcessOptions options;
  options.timeout = seconds(setting("TRIREME_CHAOS_TIMEOUT", 2));
  options.time_limit = seconds(30 + 3 * setting("TRIREME_CHAOS_SLEEP", 6));
  return options;
}
Duration sleep_time() { return seconds(setting("TRIREME_CHAOS_SLEEP", 6)); }

void sleep_without_progress(Duration duration) { Event().wait(duration); }

// All-reduces without end; prints a line when it is in the middle of them.
TRIREME_PROCESS(loop) {
  Job job(argc, argv);
  std::vector<float> x(1 << 16, 1.0f);
  for (long step = 0;; ++step) {
    job.set_step(step);
    for (const char* bucket : {"bucket 0", "bucket 1"}) {
      all_reduce(job.world(), x, Mean, {.label = bucket});
    }
    if (step == 50) std::printf("running\n");
    if (job.rank() == 0 && step >= 50 && argc > 1) sleep_without_progress(milliseconds(1));
  }
}

class Transports : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(All, Transports, ::testing::Values("shm", "tcp"));

TEST_P(Transports, AKilledRankIsNamedAndTheOthersEndWithin2s) {
  ProcessOptions options = scaled();
  options.transport = GetParam();
  Duration killed_at{};
  options.on_line = [&](int rank, std::string_view line, const RunningProcesses& running) {
    if (rank != 1 || line != "running") return;
    killed_at = running.since_start;
    send_signal(running.pids[1], SIGKILL);
  };
  const ProcessRun run = run_processes(3, "loop", options);
  EXPECT_LT(run.took - killed_at, seconds(2)) << run.describe();
  EXPECT_EQ(run.exit_code, 137) << run.describe();
  EXPECT_EQ(run.last_line.find("rank 1 on host "), 0u) << run.describe();
  EXPECT_TRUE(contains(run.last_line, "was killed by signal 9 (SIGKILL) at step "))
      << run.describe();
  EXPECT_TRUE(contains(run.last_line, "all_reduce")) << run.describe();
  for (const int survivor : {0, 2}) {
    EXPECT_EQ(run.ranks[survivor].exit_code, 160) << run.describe();
    EXPECT_TRUE(contains(run.ranks[survivor].err, "rank 1")) << run.describe();
  }
}

// Broadcasts, gathers and sums with buffers so large that the rank dies inside a call.
TRIREME_PROCESS(mover) {
  Job job(argc, argv);
  std::vector<float> part(1 << 20, 1.0f), all(part.size() * 3);
  for (long step = 0;; ++step) {
    job.set_step(step);
    broadcast(job.world(), part, int(step % 3));
    all_gather(job.world(), part, all);
    reduce_scatter(job.world(), all, part, Max);
    if (step == 5) std::printf("running\n");
  }
}

TEST(SharedMemory, ARankKilledWhileItsMemoryIsReadIsNamed) {
  for (int round = 0; round < 3; ++round) {
    ProcessOptions options = scaled();
    options.transport = "shm";
    Duration killed_at{};
    options.on_line = [&](int rank, std::string_view line, const RunningProcesses& running) {
      if (rank != 1 || line != "running") return;
      sleep_without_progress(std::chrono::microseconds(700 * round));
      killed_at = running.since_start;
      send_signal(running.pids[1], SIGKILL);
    };
    const ProcessRun run = run_processes(3, "mover", options);
    EXPECT_LT(run.took - killed_at, seconds(2)) << run.describe();
    EXPECT_EQ(run.exit_code, 137) << run.describe();
    for (const int survivor : {0, 2}) {
      EXPECT_EQ(run.ranks[survivor].exit_code, 160) << run.describe();
      EXPECT_TRUE(contains(run.ranks[survivor].err, "rank 1")) << run.describe();
    }
  }
}

TRIREME_PROCESS(sleeper) {
  Job job(argc, argv);
  std::vector<float> x{1};
  all_reduce(job.world(), x, Sum, {.label = "bucket 1"});
  if (job.rank() == 0) {
    job.activity("checkpoint.save");
    sleep_without_progress(sleep_time());
  }
  all_reduce(job.world(), x, Sum, {.label = "bucket 2"});
  std::printf("%g\n", x[0]);
  return 0;
}

TEST_P(Transports, ARankThatSleepsInUserCodeIsWaitedForWithALine) {
  ProcessOptions options = scaled();
  options.transport = GetParam();
  const ProcessRun run = run_processes(3, "sleeper", options);
  EXPECT_EQ(run.exit_code, 0) << run.describe();
  EXPECT_EQ(run.ranks[0].out, "9\n");
  EXPECT_TRUE(contains(run.ranks[1].err, "rank 0 is in user code since ")) << run.describe();
  EXPECT_TRUE(contains(run.ranks[1].err,
                       " s (last call checkpoint.save); 2 ranks wait in all_reduce bucket 2\n"))
      << run.describe();
  EXPECT_EQ(run.ranks[2].err, "") << "one rank speaks for all: " << run.describe();
}

TEST(Chaos, UserCodeHasItsOwnBound) {
  ProcessOptions options = scaled();
  options.environment = {"TRIREME_TIMEOUT_USER_CODE=3"};
  const ProcessRun run = run_processes(2, "sleeper", options);
  EXPECT_EQ(run.exit_code, 161) << run.describe();
  EXPECT_TRUE(contains(run.last_line, "rank 0")) << run.describe();
}

// Stops all threads of a process from this thread, as gdb does.
class Held {
 public:
  explicit Held(pid_t pid) {
    const std::string tasks = "/proc/" + std::to_string(pid) + "/task";
    for (const auto& task : std::filesystem::directory_iterator(tasks)) {
      const pid_t thread = std::stoi(task.path().filename().string());
      if (ptrace(PTRACE_ATTACH, thread, nullptr, nullptr) != 0) continue;
      waitpid(thread, nullptr, __WALL);
      threads_.push_back(thread);
    }
  }
  ~Held() {
    for (const pid_t thread : threads_) ptrace(PTRACE_DETACH, thread, nullptr, nullptr);
  }
  bool any() const { return !threads_.empty(); }

 private:
  std::vector<pid_t> threads_;
};

void hold(pid_t pid, bool by_debugger) {
  if (by_debugger) {
    const Held held(pid);
    if (!held.any()) std::printf("could not attach\n");
    return sleep_without_progress(sleep_time());
  }
  send_signal(pid, SIGSTOP);
  sleep_without_progress(sleep_time());
  send_signal(pid, SIGCONT);
}

// Rank 0 stops rank 1 from another thread and lets it continue later.
TRIREME_PROCESS(stopped) {
  Job job(argc, argv);
  std::vector<std::int64_t> pid{getpid()}, pids(static_cast<std::size_t>(job.size()));
  all_gather(job.world(), pid, pids);
  std::thread supervise;
  if (job.rank() == 0) {
    supervise = std::thread([&] { hold(static_cast<pid_t>(pids[1]), argc > 1); });
  }
  std::vector<float> x{1};
  const TimePoint end = steady_now() + sleep_time() / 2;
  for (bool more = true; more; more = x[0] < 1) {
    x[0] = steady_now() < end ? 0 : 1;
    all_reduce(job.world(), x, Min, {.label = "bucket 2"});
  }
  if (supervise.joinable()) supervise.join();
  return 0;
}

TEST_P(Transports, AStoppedRankIsWaitedForWithALine) {
  ProcessOptions options = scaled();
  options.transport = GetParam();
  if (options.transport == "tcp") options.arguments = {"debugger"};
  const ProcessRun run = run_processes(3, "stopped", options);
  EXPECT_EQ(run.exit_code, 0) << run.describe();
  EXPECT_TRUE(contains(run.ranks[0].err, "rank 1 is stopped (debugger or SIGSTOP) since "))
      << run.describe();
  EXPECT_TRUE(contains(run.ranks[0].err, "2 ranks wait in all_reduce bucket 2")) << run.describe();
}

TRIREME_PROCESS(throws) {
  Job job(argc, argv);
  std::vector<float> x{1};
  for (long step = 0;; ++step) {
    job.set_step(step);
    all_reduce(job.world(), x, Mean, {.label = "bucket 0"});
    if (job.rank() == 1 && step == 7) throw std::out_of_range("index 12 of 10");
  }
}

TEST(Chaos, AnExceptionInMainEndsAllWith20) {
  const ProcessRun run = run_processes(3, "throws", scaled());
  EXPECT_EQ(run.exit_code, 20) << run.describe();
  EXPECT_EQ(run.last_line.find("rank 1 threw std::out_of_range: index 12 of 10"), 0u)
      << run.describe();
  EXPECT_TRUE(contains(run.last_line, "step 7")) << run.describe();
  EXPECT_LT(run.took, seconds(4)) << run.describe();
  EXPECT_EQ(run.ranks[0].exit_code, 160) << run.describe();
  EXPECT_TRUE(contains(run.ranks[0].err, "std::out_of_range")) << run.describe();
}

TRIREME_PROCESS(throws_ours) {
  Job job(argc, argv);
  std::vector<float> x{1};
  all_reduce(job.world(), x, Sum);
  if (job.rank() == 0) throw ResourceError("the disk is full", {.operation = "checkpoint.save"});
  all_reduce(job.world(), x, Sum);
  return 0;
}

TEST(Chaos, AnErrorOfTheTreeKeepsItsCode) {
  const ProcessRun run = run_processes(2, "throws_ours", scaled());
  EXPECT_EQ(run.exit_code, 170) << run.describe();
  EXPECT_TRUE(contains(run.last_line, "the disk is full (checkpoint.save)")) << run.describe();
}

TRIREME_PROCESS(differs) {
  Job job(argc, argv);
  std::vector<float> x(job.rank() == 1 ? 8 : 4);
  all_reduce(job.world(), x, Sum, {.label = "bucket 3"});
  return 0;
}

TEST_P(Transports, DifferentCallsAreRefused) {
  ProcessOptions options = scaled();
  options.transport = GetParam();
  const ProcessRun run = run_processes(2, "differs", options);
  EXPECT_EQ(run.exit_code, 23) << run.describe();
  EXPECT_TRUE(contains(run.last_line, "bucket 3")) << run.describe();
}

TRIREME_PROCESS(elsewhere) {
  Job job(argc, argv);
  std::vector<float> x{1};
  barrier(job.world());
  if (job.rank() == 1) {
    job.world().recv(buffer_of(x), 0, 5).wait();
  } else {
    all_reduce(job.world(), x, Sum, {.label = "bucket 4"});
  }
  return 0;
}

TEST_P(Transports, AMissingCallEndsAtTheDeadlineNamingWhoDoesWhatInstead) {
  ProcessOptions options = scaled();
  options.transport = GetParam();
  const ProcessRun run = run_processes(3, "elsewhere", options);
  EXPECT_EQ(run.exit_code, 161) << run.describe();
  EXPECT_LT(run.took, options.timeout * 2 + seconds(3)) << run.describe();
  const std::string all = run.last_line + run.ranks[0].err + run.ranks[2].err;
  EXPECT_TRUE(contains(all, "rank 1 in recv")) << run.describe();
  EXPECT_TRUE(contains(all, "rank 0, 2 in all_reduce bucket 4")) << run.describe();
}

TRIREME_PROCESS(leaves) {
  Job job(argc, argv);
  std::vector<float> x{1};
  all_reduce(job.world(), x, Sum, {.label = "bucket 0"});
  if (job.rank() == 1) return 0;
  all_reduce(job.world(), x, Sum, {.label = "bucket 1"});
  return 0;
}

TEST_P(Transports, ARankThatReturnsEarlyIsNamed) {
  ProcessOptions options = scaled();
  options.transport = GetParam();
  const ProcessRun run = run_processes(3, "leaves", options);
  EXPECT_EQ(run.exit_code, 160) << run.describe();
  EXPECT_EQ(run.ranks[1].exit_code, 0) << run.describe();
  EXPECT_TRUE(contains(run.last_line, "rank 1")) << run.describe();
  EXPECT_TRUE(contains(run.last_line, "all_reduce bucket 1")) << run.describe();
  EXPECT_LT(run.took, seconds(4)) << run.describe();
}

TRIREME_PROCESS(never_joins) {
  if (std::string(std::getenv("TRIREME_RANK")) == "1") return 0;
  Job job(argc, argv);
  return 0;
}

TEST(Chaos, ARankThatEndsWithoutJoiningIsNamed) {
  const ProcessRun run = run_processes(2, "never_joins", scaled());
  EXPECT_EQ(run.exit_code, 160) << run.describe();
  EXPECT_TRUE(contains(run.last_line, "rank 1 has ended")) << run.describe();
}

}  // namespace
}  // namespace trireme
