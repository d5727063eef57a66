// launch: starts N ranks of one program on this host and stands behind them until all have ended.
//
//   trireme launch -n 4 [--log-dir DIR] [--only-rank K] [--bind core|numa|none] -- PROGRAM args…
//
// Lines are prefixed by rank ("[1] …", stdout and stderr apart). One rank fails: all end within
// 2 s, and the exit code and the last line name the first failure. SIGINT, SIGTERM, SIGHUP and
// SIGUSR1 ask the ranks to stop (by SIGINT or SIGTERM); the second SIGINT or SIGTERM, or
// `stop_grace`, kills them, the third ends this process whatever holds it. When this process is
// killed, the kernel kills the ranks. From either moment on no more ranks are started. Call from
// the main thread, before other threads exist (signals are blocked meanwhile).
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/clock.h"
#include "trireme/launch/cores.h"
#include "trireme/launch/membership.h"

namespace trireme {
inline namespace v0 {
namespace launch {

struct LaunchOptions {
  int ranks = 1;
  std::vector<std::string> command;      // program and its arguments
  std::vector<std::string> environment;  // "NAME=value", over this process's own
  std::vector<int> inherit;              // descriptors that stay open in every rank
  std::string log_dir;                   // one file per rank: rank-K.log
  std::optional<int> only_rank;          // print this rank's lines only
  Bind bind = Bind::Core;
  /// Rank 0 writes to this process's stdout and stderr itself, unprefixed (a progress line on a
  /// terminal needs that); of the others only stderr is shown. Not with log_dir.
  bool rank0_direct = false;
  std::string listen = "127.0.0.1";
  Duration stop_grace = std::chrono::seconds(30);
  bool handle_signals = true;
  /// Everything still running is killed then. For tests.
  Duration time_limit = Duration::max();
  /// Takes the lines instead of stdout and stderr. Called from one thread at a time.
  std::function<void(int rank, bool error, std::string_view line)> on_line = {};
  /// Called when a rank's process has been started.
  std::function<void(int rank, pid_t pid)> on_start = {};
};

struct LaunchResult {
  int exit_code = 0;
  std::vector<int> exit_codes;     // by rank; 128+n where a signal ended it, -1: never started
  std::optional<Failure> failure;  // the first
  int stop_signal = 0;             // that this process got
  bool out_of_time = false;        // time_limit ended it
  /// "" after success; else what run() prints last.
  std::string last_line;
};

/// Throws ConfigError and ResourceError when nothing could be started.
LaunchResult launch(const LaunchOptions& options);
/// launch(), with errors and the last line printed; returns the exit code.
int run(const LaunchOptions& options);

}  // namespace launch
}  // namespace v0
}  // namespace trireme
