// The launcher in its own process: killed, interrupted, and two launchers side by side.
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <thread>

#include "trireme/base/event.h"
#include "trireme/job.h"
#include "trireme/rendezvous/client.h"
#include "trireme/rendezvous/membership.h"
#include "trireme/rendezvous/secret.h"
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

constexpr int kLaunched = 2;

TRIREME_PROCESS(busy) {
  Job job(argc, argv);
  std::vector<float> x(1 << 16, 1.0f);
  for (long step = 0;; ++step) {
    all_reduce(job.world(), x, Mean);
    if (step == 20) std::printf("running\n");
  }
}

TRIREME_PROCESS(polite) {
  Job job(argc, argv);
  std::vector<int> stop{0};
  for (long step = 0; stop[0] == 0; ++step) {
    stop[0] = job.stop_signal();
    all_reduce(job.world(), stop, Max);
    if (step == 20) std::printf("running\n");
  }
  std::printf("stopping with %d\n", stop[0]);
  return stop[0];
}

// `trireme launch -n 2` of the body named by argv[1]; prints each rank's process id.
TRIREME_PROCESS(launcher) {
  ProcessOptions options;
  options.timeout = seconds(2);
  auto launch = testing::process_launch_options(kLaunched, argv[1], options);
  launch.stop_grace = seconds(argc > 2 ? std::atoi(argv[2]) : 30);
  launch.on_start = [](int, pid_t pid) { std::printf("pid %d\n", static_cast<int>(pid)); };
  return launch::run(launch);
}

// Adds the inodes of the sockets that `pid` has open, as /proc names them: "socket:[123]".
void add_sockets(pid_t pid, std::set<std::string>& inodes) {
  std::error_code gone;
  const std::string folder = "/proc/" + std::to_string(pid) + "/fd";
  for (const auto& entry : std::filesystem::directory_iterator(folder, gone)) {
    const std::string target = std::filesystem::read_symlink(entry.path(), gone).string();
    if (target.rfind("socket:[", 0) == 0) inodes.insert(target.substr(8, target.size() - 9));
  }
}

// Those that the kernel still knows; other jobs on this host have sockets too.
std::set<std::string> alive(const std::set<std::string>& inodes) {
  std::set<std::string> found;
  for (const char* table : {"/proc/net/unix", "/proc/net/tcp"}) {
    std::ifstream file(table);
    for (std::string word; file >> word;) {
      if (inodes.count(word) != 0) found.insert(word);
    }
  }
  return found;
}

std::set<std::string> shared_memory() {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm")) {
    if (entry.path().filename().string().find("trireme") != std::string::npos) {
      names.insert(entry.path().filename().string());
    }
  }
  return names;
}

// Waits until all are gone, at most 5 s: the kernel needs a moment after the launcher's death.
std::string left_behind(const std::vector<pid_t>& pids, const std::set<std::string>& sockets = {}) {
  const TimePoint end = steady_now() + seconds(5);
  for (;;) {
    std::string left;
    for (const pid_t pid : pids) {
      const char state = rendezvous::process_state(pid);
      if (state != '\0' && state != 'Z') left += " process " + std::to_string(pid);
    }
    // A process whose main thread has ended may have other threads that keep its descriptors open.
    for (const std::string& socket : alive(sockets)) left += " socket " + socket;
    if (left.empty() || steady_now() > end) return left;
    Event().wait(milliseconds(5));
  }
}

struct Killed {
  ProcessRun run;
  std::vector<pid_t> pids;
  std::set<std::string> sockets;  // of all processes, before the signal
};

// Sends `signal` to the launcher `times` times, once all of its ranks have printed "running".
Killed run_launcher(const std::string& body, int signal, int times = 1,
                    std::vector<std::string> more = {}) {
  Killed result;
  int running = 0;
  ProcessOptions options;
  options.arguments = {body};
  options.arguments.insert(options.arguments.end(), more.begin(), more.end());
  options.on_line = [&](int, std::string_view line, const RunningProcesses& processes) {
    if (const auto at = line.find("pid "); at != line.npos) {  // "pid 7", "[1] pid 8"
      result.pids.push_back(std::stoi(std::string(line.substr(at + 4))));
    }
    if (line.find("running") != line.npos && ++running == kLaunched) {
      for (const pid_t pid : result.pids) add_sockets(pid, result.sockets);
      add_sockets(processes.pids[0], result.sockets);
      for (int i = 0; i < times; ++i) {
        if (i > 0) Event().wait(milliseconds(100));
        send_signal(processes.pids[0], signal);
      }
    }
  };
  result.run = run_processes(1, "launcher", options);
  return result;
}

TEST(Launcher, KilledLeavesNothingBehind) {
  const char* text = std::getenv("TRIREME_CHAOS_CYCLES");
  const int cycles = text ? std::atoi(text) : 10;
  const auto memory = shared_memory();
  for (int cycle = 0; cycle < cycles; ++cycle) {
    const Killed killed = run_launcher("busy", SIGKILL);
    ASSERT_EQ(killed.run.exit_code, 137) << killed.run.describe();
    ASSERT_EQ(killed.pids.size(), static_cast<std::size_t>(kLaunched));
    ASSERT_GE(killed.sockets.size(), 4u) << "coordinator and ranks";
    ASSERT_EQ(left_behind(killed.pids, killed.sockets), "") << "cycle " << cycle;
  }
  EXPECT_EQ(shared_memory(), memory);
}

TRIREME_PROCESS(parents) {
  Job job(argc, argv);
  pid_t child = -1;
  const char* const command[] = {"sleep", "600", nullptr};
  if (posix_spawnp(&child, command[0], nullptr, nullptr, const_cast<char**>(command), environ)) {
    return 1;
  }
  std::printf("pid %d\nrunning\n", static_cast<int>(child));
  std::vector<float> x(8);
  for (;;) all_reduce(job.world(), x, Mean);
}

// The kernel kills the ranks; the guard kills the processes that they started.
TEST(Launcher, KilledTakesTheRanksChildrenWithIt) {
  const Killed killed = run_launcher("parents", SIGKILL);
  ASSERT_EQ(killed.pids.size(), 2u * kLaunched) << killed.run.describe();
  EXPECT_EQ(left_behind(killed.pids, killed.sockets), "");
  for (const pid_t pid : killed.pids) send_signal(pid, SIGKILL);  // only if the test failed
}

// Waits until all are stopped, or none is, at most 5 s.
bool all_stopped(const std::vector<pid_t>& pids, bool stopped) {
  const TimePoint end = steady_now() + seconds(5);
  for (;;) {
    const bool so = std::all_of(pids.begin(), pids.end(), [&](pid_t pid) {
      return (rendezvous::process_state(pid) == 'T') == stopped;
    });
    if (so || steady_now() > end) return so;
    Event().wait(milliseconds(5));
  }
}

// Ctrl-Z reaches the launcher alone, because ranks are in process groups of their own.
TEST(Launcher, StopsAndContinuesItsRanksWithItself) {
  std::vector<pid_t> pids;
  int running = 0;
  bool stopped = false, continued = false;
  ProcessOptions options;
  options.arguments = {"polite"};
  options.on_line = [&](int, std::string_view line, const RunningProcesses& processes) {
    if (line.find("pid ") == 0) pids.push_back(std::stoi(std::string(line.substr(4))));
    if (line.find("running") == line.npos || ++running < kLaunched) return;
    pids.push_back(processes.pids[0]);
    send_signal(processes.pids[0], SIGTSTP);
    stopped = all_stopped(pids, true);
    send_signal(processes.pids[0], SIGCONT);
    continued = all_stopped(pids, false);
    send_signal(processes.pids[0], SIGTERM);
  };
  const ProcessRun run = run_processes(1, "launcher", options);
  EXPECT_EQ(pids.size(), kLaunched + 1u) << run.describe();
  EXPECT_TRUE(stopped) << run.describe();
  EXPECT_TRUE(continued) << run.describe();
  EXPECT_EQ(run.exit_code, 143) << run.describe();
}

TEST(Launcher, PassesAStopSignalOnAndExitsWithItsCode) {
  for (const auto& [signal, code] : {std::pair(SIGINT, 130), std::pair(SIGTERM, 143)}) {
    const Killed stopped = run_launcher("polite", signal);
    EXPECT_EQ(stopped.run.exit_code, code) << stopped.run.describe();
    const std::string& out = stopped.run.ranks[0].out;
    for (int rank = 0; rank < kLaunched; ++rank) {
      EXPECT_NE(out.find("[" + std::to_string(rank) + "] stopping with " + std::to_string(code)),
                std::string::npos)
          << stopped.run.describe();
    }
    EXPECT_EQ(left_behind(stopped.pids), "");
  }
}

// A program that does not ask for the stop signal is ended by the signal itself.
TEST(Launcher, EndsAProgramThatNeverAsksForTheSignal) {
  const Killed stopped = run_launcher("busy", SIGINT);
  EXPECT_EQ(stopped.run.exit_code, 130) << stopped.run.describe();
  EXPECT_EQ(left_behind(stopped.pids), "");
}

TRIREME_PROCESS(deaf) {
  signal(SIGINT, SIG_IGN);
  Job job(argc, argv);
  std::vector<float> x(8);
  for (long step = 0;; ++step) {
    all_reduce(job.world(), x, Mean);
    if (step == 20) std::printf("running\n");
  }
}

TEST(Launcher, KillsAtTheSecondSignalOrAfterTheGrace) {
  const Killed twice = run_launcher("deaf", SIGINT, 2);
  EXPECT_EQ(twice.run.exit_code, 130) << twice.run.describe();
  EXPECT_EQ(left_behind(twice.pids), "");
  const Killed graced = run_launcher("deaf", SIGINT, 1, {"1"});
  EXPECT_EQ(graced.run.exit_code, 130) << graced.run.describe();
  EXPECT_LT(graced.run.took, seconds(5));
  EXPECT_NE(graced.run.ranks.at(0).err.find("after the request to stop: rank 0"), std::string::npos)
      << graced.run.describe();
}

TRIREME_PROCESS(steps) {
  Job job(argc, argv);
  std::vector<float> x(1 << 14, 1.0f);
  for (int step = 0; step < 200; ++step) all_reduce(job.world(), x, Mean);
  std::printf("done\n");
  return 0;
}

TEST(Launcher, TwoJobsOnOneHostDoNotMeet) {
  std::vector<ProcessRun> runs(2);
  std::vector<std::thread> threads;
  for (auto& run : runs) {
    threads.emplace_back([&run] { run = run_processes(2, "steps"); });
  }
  for (auto& thread : threads) thread.join();
  for (const auto& run : runs) {
    EXPECT_EQ(run.exit_code, 0) << run.describe();
    for (const auto& rank : run.ranks) EXPECT_EQ(rank.out, "done\n") << run.describe();
  }
}

// Rank 1 gives up because of another rank; rank 0 stays outside the job until it is killed.
TRIREME_PROCESS(gives_up) {
  if (std::string(std::getenv("TRIREME_RANK")) == "0") {
    Event().wait(seconds(20));
    return 0;
  }
  rendezvous::CoordinatorClient client(
      {.endpoint = std::getenv("TRIREME_COORDINATOR"),
       .secret = rendezvous::read_secret_descriptor(std::atoi(std::getenv("TRIREME_SECRET_FD"))),
       .job = std::getenv("TRIREME_JOB"),
       .rank = 1});
  std::printf("now\n");
  client.report({.rank = 1, .sentence = "rank 0 is gone", .exit_code = 160});
  return 160;
}

// The launcher passes such a report on after 300 ms, unless the cause is known by then. The last
// rank may end at that moment.
TEST(Launcher, MayEndWhileItIsAboutToTellOfAFailure) {
  for (int i = 0; i < 14; ++i) {
    ProcessOptions options;
    std::thread killer;
    Duration late{};  // on few cores: after a second the launcher ends rank 0 itself
    options.on_line = [&](int, std::string_view line, const RunningProcesses& running) {
      if (line != "now") return;
      killer = std::thread([&late, start = steady_now(), pid = running.pids[0], i] {
        Event().wait(std::chrono::microseconds(295'000 + 500 * i));
        late = steady_now() - start;
        if (late < milliseconds(800)) send_signal(pid, SIGKILL);
      });
    };
    const ProcessRun run = run_processes(2, "gives_up", options);
    ASSERT_TRUE(killer.joinable()) << run.describe();
    killer.join();
    EXPECT_EQ(run.exit_code, late < milliseconds(800) ? 137 : 160) << run.describe();
  }
}

}  // namespace
}  // namespace trireme
