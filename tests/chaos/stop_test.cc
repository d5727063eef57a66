// Stop signals that are sent to one rank or to all: every rank stops at the same step.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include "trireme/base/event.h"
#include "trireme/job.h"
#include "trireme/testing/run_processes.h"

namespace trireme {
namespace {

using std::chrono::milliseconds;
using testing::ProcessOptions;
using testing::ProcessRun;
using testing::run_processes;
using testing::RunningProcesses;
using testing::send_signal;

bool says(const std::string& text, const std::string& part) { return text.find(part) != text.npos; }

// Prints the step at which all stop, instead of saving a checkpoint.
TRIREME_PROCESS(obedient) {
  Job job(argc, argv);
  std::vector<int> stop{0};
  long step = 0;
  for (; stop[0] == 0; ++step) {
    stop[0] = job.stop_signal();
    all_reduce(job.world(), stop, Max);
    if (step == 20) std::printf("running\n");
  }
  std::printf("checkpoint of step %ld\n", step);
  return stop[0];
}

using Send = std::function<void(const RunningProcesses& running)>;

// Calls `send` when rank 1 is in the middle of its steps.
ProcessRun stopped(const Send& send) {
  ProcessOptions options;
  options.on_line = [&](int rank, std::string_view line, const RunningProcesses& running) {
    if (rank == 1 && line == "running") send(running);
  };
  return run_processes(2, "obedient", options);
}

void expect_stopped(const ProcessRun& run, int code) {
  EXPECT_EQ(run.exit_code, code) << run.describe();
  const std::string at = run.ranks[0].out.substr(run.ranks[0].out.find("checkpoint"));
  for (const auto& rank : run.ranks) {
    EXPECT_EQ(rank.exit_code, code) << run.describe();
    EXPECT_TRUE(says(rank.out, at)) << run.describe();
  }
}

constexpr std::pair<int, int> kCodes[] = {
    {SIGINT, 130}, {SIGTERM, 143}, {SIGUSR1, 143}, {SIGHUP, 143}};

TEST(Stop, ASignalToOneRankStopsAllAtOneStep) {
  for (const auto& [one, code] : kCodes) {
    const int signal = one;
    expect_stopped(stopped([&](const auto& running) { send_signal(running.pids[1], signal); }),
                   code);
  }
}

TEST(Stop, ASignalToAllRanksStopsAllAtOneStep) {
  for (const auto& [one, code] : kCodes) {
    const int signal = one;
    expect_stopped(stopped([&](const auto& running) {
                     for (const pid_t pid : running.pids) send_signal(pid, signal);
                   }),
                   code);
  }
}

// Such as from a process group and from the launcher, or Slurm's warning and its final signal.
// The kernel does not deliver signals of one moment in the order in which they were sent.
TEST(Stop, OneRequestThatArrivesAsSeveralSignalsEndsNobodyAtOnce) {
  const ProcessRun run = stopped([](const auto& running) {
    for (const int signal : {SIGUSR1, SIGTERM, SIGHUP, SIGINT, SIGUSR1})
      send_signal(running.pids[1], signal);
  });
  expect_stopped(run, run.exit_code == 130 ? 130 : 143);
}

// Asks for the signal but continues for longer than repeated signals count as one request.
TRIREME_PROCESS(stubborn) {
  Job job(argc, argv);
  job.stop_signal();
  std::printf("running\n");
  while (job.stop_signal() == 0) Event().wait(milliseconds(1));
  Event().wait(milliseconds(1100));
  std::printf("still here\n");
  for (;;) Event().wait(milliseconds(100));
}

TEST(Stop, ASecondSignalEndsAProgramThatDoesNotStop) {
  for (const int signal : {SIGINT, SIGTERM}) {
    ProcessOptions options;
    options.on_line = [&](int, std::string_view, const RunningProcesses& running) {
      send_signal(running.pids[0], signal);
    };
    const ProcessRun run = run_processes(1, "stubborn", options);
    EXPECT_FALSE(run.out_of_time) << run.describe();
    EXPECT_EQ(run.ranks[0].exit_code, 128 + signal) << run.describe();
  }
}

}  // namespace
}  // namespace trireme
