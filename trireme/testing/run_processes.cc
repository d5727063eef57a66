#include "trireme/testing/run_processes.h"

#include <signal.h>

#include <cstdlib>
#include <filesystem>

#include "trireme/base/check.h"

namespace trireme::inline v0::testing {

launch::LaunchOptions process_launch_options(int ranks, std::string_view body,
                                             const ProcessOptions& options) {
  launch::LaunchOptions launch;
  launch.ranks = ranks;
  launch.command = {std::filesystem::read_symlink("/proc/self/exe").string()};
  launch.command.insert(launch.command.end(), options.arguments.begin(), options.arguments.end());
  launch.environment = options.environment;
  const auto put = [&](const std::string& name, const std::string& value) {
    launch.environment.push_back(name + "=" + value);
  };
  const double seconds = to_seconds(options.timeout);
  put(kProcessVariable, std::string(body));
  put("TRIREME_TEST_SEED", std::to_string(options.seed));
  put("TRIREME_TIMEOUT", std::to_string(seconds));
  put("TRIREME_COMM_TRANSPORT", options.transport);
  put("TRIREME_COMM_ALGORITHM", options.algorithm);
  launch.bind = options.bind;
  launch.time_limit = options.time_limit;
  launch.stop_grace = options.stop_grace;
  return launch;
}

void send_signal(pid_t pid, int signal) {
  TRIREME_CHECK(pid > 1);
  kill(pid, signal);
}

ProcessRun run_processes(int ranks, std::string_view body, ProcessOptions options) {
  ProcessRun run;
  run.seed = options.seed;
  run.ranks.resize(static_cast<std::size_t>(ranks));
  RunningProcesses running;
  running.pids.assign(static_cast<std::size_t>(ranks), -1);
  launch::LaunchOptions launch = process_launch_options(ranks, body, options);
  launch.handle_signals = false;  // the test program handles them
  const TimePoint start = steady_now();
  launch.on_start = [&](int rank, pid_t pid) { running.pids[rank] = pid; };
  launch.on_line = [&](int rank, bool error, std::string_view line) {
    ProcessOutcome& outcome = run.ranks[rank];
    (error ? outcome.err : outcome.out).append(line).append("\n");
    running.since_start = steady_now() - start;
    if (options.on_line) options.on_line(rank, line, running);
  };
  const launch::LaunchResult result = launch::launch(launch);
  run.took = steady_now() - start;
  run.exit_code = result.exit_code;
  run.last_line = result.last_line;
  run.out_of_time = result.out_of_time;
  for (int rank = 0; rank < ranks; ++rank) run.ranks[rank].exit_code = result.exit_codes[rank];
  return run;
}

std::string ProcessRun::describe() const {
  std::string text = "seed " + std::to_string(seed) + ", exit code " + std::to_string(exit_code) +
                     (out_of_time ? ", OUT OF TIME" : "") + "\nlast line: " + last_line + "\n";
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    const ProcessOutcome& one = ranks[rank];
    text += "--- rank " + std::to_string(rank) + ", exit code " + std::to_string(one.exit_code) +
            "\n" + one.out + one.err;
  }
  return text;
}

std::uint64_t process_seed() {
  const char* seed = std::getenv("TRIREME_TEST_SEED");
  return seed ? std::strtoull(seed, nullptr, 10) : 1;
}

}  // namespace trireme::inline v0::testing
