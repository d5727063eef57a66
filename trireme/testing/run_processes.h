// run_processes(n, body): n real processes under the real launcher, each running a TRIREME_PROCESS
// of this test program (process_bodies.h). Ports are the system's choice; nothing is left behind.
//
// Print `describe()` where an expectation fails: it holds every rank's exit code and output, and
// the seed (which bodies read by process_seed()).
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/launch/launch.h"
#include "trireme/testing/process_bodies.h"

namespace trireme {
inline namespace v0 {
namespace testing {

/// What a hook may know of the run. A rank that has not started yet has pid -1.
struct RunningProcesses {
  std::vector<pid_t> pids;  // by rank
  Duration since_start{};
};

/// kill(), for one process: throws where `pid` is none, as of a rank that has not started yet (-1
/// would be every process there is).
void send_signal(pid_t pid, int signal);

struct ProcessOptions {
  std::uint64_t seed = 1;
  Duration timeout = std::chrono::seconds(10);     // of the job: TRIREME_TIMEOUT
  Duration time_limit = std::chrono::seconds(60);  // everything is killed then
  std::string transport = "auto";
  std::string algorithm = "auto";
  std::vector<std::string> environment = {};  // "NAME=value"
  std::vector<std::string> arguments = {};    // argv[1...] of the bodies
  launch::Bind bind = launch::Bind::None;     // tests run side by side
  Duration stop_grace = std::chrono::seconds(30);
  /// Called at every line that a rank writes; may kill ranks. Not from several threads at once.
  std::function<void(int rank, std::string_view line, const RunningProcesses& running)> on_line =
      nullptr;
};

struct ProcessOutcome {
  int exit_code = 0;  // 128+n where a signal ended it
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

/// The launcher's options of such a run, for tests that start the launcher in a process of its own.
launch::LaunchOptions process_launch_options(int ranks, std::string_view body,
                                             const ProcessOptions& options);
std::uint64_t process_seed();

}  // namespace testing
}  // namespace v0
}  // namespace trireme
