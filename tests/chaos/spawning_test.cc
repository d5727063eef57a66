// Events while a launcher starts its ranks: signals, a first rank that fails, a killed guard, its
// own death. Moments are events (the k-th rank has started), not times.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "tests/chaos/shell.h"
#include "trireme/base/event.h"
#include "trireme/job.h"
#include "trireme/rendezvous/membership.h"

namespace trireme {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using test::run_shell;
using test::ShellRun;

constexpr int kMany = 60;

std::string word(const char* name) {
  const char* text = std::getenv(name);
  return text == nullptr ? "" : text;
}

// This process's guard; it is the launcher's first child.
pid_t guard() {
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::ifstream children(task.path() / "children");
    for (pid_t child; children >> child;) {
      std::string name;
      std::getline(std::ifstream("/proc/" + std::to_string(child) + "/comm"), name);
      if (name == "trireme-guard") return child;
    }
  }
  std::abort();  // kill(-1) would end every process of this user
}

void wait_for_the_end_of(pid_t pid) {
  siginfo_t info{};
  waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOWAIT);
}

void stop_and_wait(pid_t pid) {
  kill(pid, SIGSTOP);
  while (rendezvous::process_state(pid) != 'T') Event().wait(milliseconds(1));
}

// Starts 60 ranks of argv[1...]; when rank $AT has started, does what $DOES says.
TRIREME_PROCESS(starts) {
  launch::LaunchOptions options;
  options.ranks = kMany;
  options.command.assign(argv + 1, argv + argc);
  options.bind = launch::Bind::None;
  const int at = std::atoi(word("AT").c_str());
  const std::string does = word("DOES");
  options.on_start = [&](int rank, pid_t pid) {
    std::printf("started %d\n", static_cast<int>(pid));
    if (does == "stopped ranks") stop_and_wait(pid);
    if (rank != at) return;
    std::fflush(stdout);
    if (does == "fails") wait_for_the_end_of(pid);
    if (does == "kills guard") {
      kill(guard(), SIGKILL);
      wait_for_the_end_of(guard());
    }
    if (does == "stopped ranks") kill(getpid(), SIGKILL);
    if (const int signal = std::atoi(does.c_str())) kill(getpid(), signal);
  };
  return launch::run(options);
}

// `at`: a rank; `does`: what happens when it has started.
ShellRun start_ranks(int at, const std::string& does, const std::string& program) {
  return run_shell("export AT=" + std::to_string(at) + " DOES='" + does +
                   "'; TRIREME_TEST_PROCESS=starts exec \"$SELF\" " + program);
}

std::string still_there(const ShellRun& run) {
  const TimePoint end = steady_now() + seconds(20);
  for (;;) {
    std::string left;
    std::istringstream lines(run.out);
    for (std::string line; std::getline(lines, line);) {
      if (line.rfind("started ", 0) != 0) continue;
      const char state = rendezvous::process_state(std::stoi(line.substr(8)));
      if (state != '\0' && state != 'Z') left += line + "; ";
    }
    if (left.empty() || steady_now() > end) return left;
    Event().wait(milliseconds(5));
  }
}

TEST(Spawning, EndsAtASignalAndStartsNoMore) {
  const std::pair<int, int> signals[] = {
      {SIGINT, 130}, {SIGTERM, 143}, {SIGHUP, 143}, {SIGUSR1, 143}};
  for (const auto& [signal, code] : signals) {
    for (const int at : {0, 1, 7, kMany - 1}) {
      const ShellRun run = start_ranks(at, std::to_string(signal), "sleep 600");
      EXPECT_EQ(run.code, code) << "rank " << at << "\n" << run.describe();
      EXPECT_EQ(run.count("started "), at + 1) << "rank " << at << "\n" << run.describe();
      EXPECT_EQ(run.count("trireme: stopped by SIG" + std::string(sigabbrev_np(signal)) + "."), 1)
          << run.describe();
      EXPECT_EQ(still_there(run), "");
    }
  }
}

TEST(Spawning, ALauncherUnderNohupHearsNoHangUp) {
  const ShellRun run = run_shell(
      "trap '' HUP; export AT=2 DOES=1; TRIREME_TEST_PROCESS=starts exec \"$SELF\" "
      "sh -c 'kill -HUP $$; exit 0'");
  EXPECT_EQ(run.code, 0) << run.describe();
  EXPECT_EQ(run.count("started "), kMany) << run.describe();
}

TEST(Spawning, StartsNoMoreOnceARankHasFailed) {
  for (const int at : {0, 5, kMany - 1}) {
    const ShellRun run = start_ranks(
        at, "fails",
        "sh -c '[ $TRIREME_RANK = " + std::to_string(at) + " ] && exit 7; exec sleep 600'");
    EXPECT_EQ(run.code, 7) << run.describe();
    EXPECT_EQ(run.count("rank " + std::to_string(at) + " on host "), 1) << run.describe();
    // The launcher sees the end at one of the next steps: epoll may have been asked just before.
    EXPECT_LE(run.count("started "), at + 2) << run.describe();
    EXPECT_EQ(still_there(run), "");
  }
}

TEST(Spawning, AGuardThatIsKilledDisturbsNobody) {
  for (const int at : {0, kMany / 2, kMany - 1}) {
    const ShellRun run = start_ranks(at, "kills guard", "true");
    EXPECT_EQ(run.code, 0) << run.describe();
    EXPECT_EQ(run.count("started "), kMany) << run.describe();
  }
}

// A stopped process dies by SIGKILL only; the guard kills its child.
TEST(Spawning, AKilledLauncherTakesStoppedRanksWithIt) {
  for (const int at : {0, 9}) {
    const ShellRun run = start_ranks(at, "stopped ranks", "sleep 600");
    EXPECT_EQ(run.code, 137) << run.describe();
    EXPECT_EQ(run.count("started "), at + 1) << run.describe();
    EXPECT_EQ(still_there(run), "");
  }
}

TEST(Spawning, TwoLaunchersAtOnceKnowNothingOfEachOther) {
  const ShellRun run = run_shell(
      "become 9 sleep 600 & sleeping=$!\n"
      "launch 9 sh -c 'echo done'; code=$?\n"
      "kill -TERM $sleeping; wait $sleeping; echo the other one: $?; exit $code");
  EXPECT_EQ(run.code, 0) << run.describe();
  EXPECT_EQ(run.count("] done"), 9) << run.describe();
  EXPECT_EQ(run.count("the other one: 143"), 1) << run.describe();
}

TEST(Spawning, EndedRanksAreSeenThoughAParentIgnoredSigchld) {
  const ShellRun run = run_shell("trap '' CHLD; become 3 sh -c 'exit 7'");
  EXPECT_EQ(run.code, 7) << run.describe();
}

// As with `| less`: the launcher's output is blocked while nobody reads it.
TEST(Spawning, FollowsASignalWhileNobodyTakesItsOutput) {
  const ShellRun run = run_shell(
      "pipe=$(mktemp -u); mkfifo $pipe; exec 3<>$pipe; rm $pipe\n"
      "become 2 yes >&3 & launcher=$!\n"
      "dd bs=1 count=1 <&3 2>/dev/null >&2\n"  // the launcher runs
      "while dd if=/dev/zero of=/dev/fd/3 oflag=nonblock bs=4096 count=1 2>/dev/null; do :; done\n"
      "kill -TERM $launcher; wait $launcher");
  EXPECT_EQ(run.code, 143) << run.describe();
  EXPECT_EQ(run.count("trireme: stopped by SIGTERM."), 1) << run.describe();
}

// A rank is ended from outside, before it has joined or just before it joins.
TRIREME_PROCESS(ended_early) {
  if (word("TRIREME_RANK") == "1") kill(getpid(), std::atoi(word("SIGNAL").c_str()));
  Job job(argc, argv);
  barrier(job.world());
  return 0;
}

TEST(Spawning, ASignalToOneRankIsTheCauseThatIsNamed) {
  for (const int signal : {SIGTERM, SIGINT}) {
    const ShellRun run = run_shell("export SIGNAL=" + std::to_string(signal) +
                                   "; launch 2 env TRIREME_TEST_PROCESS=ended_early \"$SELF\"");
    EXPECT_EQ(run.code, 128 + signal) << run.describe();
    // The launcher names it once. Rank 0 does, too, if it hears it before it is ended.
    const int named = run.count("trireme: rank 1 on host "),
              by_rank_0 = run.count("[0] trireme: rank 1 on host ");
    EXPECT_EQ(named - by_rank_0, 1) << run.describe();
    EXPECT_LE(by_rank_0, 1) << run.describe();
    EXPECT_GE(run.count("was killed by signal " + std::to_string(signal)), named) << run.describe();
  }
}

}  // namespace
}  // namespace trireme
