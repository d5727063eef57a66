// run_processes(n, body): runs n processes under the real launcher, each with a TRIREME_PROCESS of
// this test program (process_bodies.h). The system picks ports; nothing is left behind.
//
// Print `describe()` when an expectation fails: it has every rank's exit code and output, and the
// seed (bodies read it by process_seed()).
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/launch/launch.h"
#include "trireme/testing/process_bodies.h"

namespace trireme::inline v0::testing {

/// The facts that a hook may know about the run. A rank that has not started yet has pid -1.
struct RunningProcesses {
  std::vector<pid_t> pids;  // by rank
  Duration since_start{};
};

/// kill() for one process. Throws if `pid` is not a process number: a rank that has not started yet
/// has -1, and kill(-1) would reach every process.
void send_signal(pid_t pid, int signal);

struct ProcessOptions {
  std::uint64_t seed = 1;
  Duration timeout = std::chrono::seconds(10);     // of the job: TRIREME_TIMEOUT
  Duration time_limit = std::chrono::seconds(60);  // kills everything that still runs
  std::string transport = "auto";
  std::string algorithm = "auto";
  std::vector<std::string> environment = {};  // "NAME=value"
  std::vector<std::string> arguments = {};    // argv[1..] of the bodies
  launch::Bind bind = launch::Bind::None;     // tests run side by side
  Duration stop_grace = std::chrono::seconds(30);
  /// Called for every line that a rank writes; may kill ranks. One thread at a time.
  std::function<void(int rank, std::string_view line, const RunningProcesses& running)> on_line =
      nullptr;
};

struct ProcessOutcome {
  int exit_code = 0;  // 128+n if signal n ended it
  std::string out, err;
};

struct ProcessRun {
  int exit_code = 0;      // the launcher's
  std::string last_line;  // the launcher's; empty after success
  std::vector<ProcessOutcome> ranks;
  bool out_of_time = false;
  Duration took{};
  std::uint64_t seed = 1;
  std::string describe() const;
};

ProcessRun run_processes(int ranks, std::string_view body, ProcessOptions options = {});

/// The launcher options of such a run, for tests that start the launcher in its own process.
launch::LaunchOptions process_launch_options(int ranks, std::string_view body,
                                             const ProcessOptions& options);
std::uint64_t process_seed();

}  // namespace trireme::inline v0::testing
