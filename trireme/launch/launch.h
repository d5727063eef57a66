// launch: starts N ranks of one program and supervises them until all have ended.
//
//   trireme launch -n 4 [--log-dir DIR] [--only-rank K] [--bind core|numa|none] -- PROGRAM ARGS...
//   trireme launch --workers 4 --servers 2 --evaluator 1 -- PROGRAM ARGS...
//   trireme launch -H node07:4,node08:4 -- PROGRAM ARGS...
//
// On other hosts processes start through ssh (remote_host.h), after all hosts have answered.
//
// With servers or an evaluator the job ends when all workers have ended: the others are told and,
// if they do not end by themselves, killed. The evaluator's failure is printed and ends no other
// process. A server whose shards others have, or a worker that trains on its own (docs/servers.md),
// is started again, `restarts` times in all.
//
// The coordinator, by which ranks meet and hear of failures, is in this process, or (`--store`) in
// a separate one that may be killed (kept_coordinator.h).
//
// In an elastic job (elastic_group.h) a lost process is started again; the others go on.
//
// Output lines get the rank as a prefix ("[1] ..."), stdout and stderr separately. If one rank
// fails, all end within 2 s, and the exit code and the last line name the first failure. SIGINT,
// SIGTERM, SIGHUP and SIGUSR1 ask the ranks to stop (by SIGINT or SIGTERM). The second SIGINT or
// SIGTERM, or the end of `stop_grace`, kills them; the third ends this process at once. If this
// process is killed, the kernel kills the ranks. After a failure or a signal no more ranks are
// started. Call it on the main thread, before other threads exist (signals are blocked meanwhile).
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/clock.h"
#include "trireme/launch/elastic_group.h"
#include "trireme/launch/hosts/cores.h"
#include "trireme/launch/hosts/hosts.h"
#include "trireme/rendezvous/membership.h"

namespace trireme::inline v0::launch {

/// The hosts of a job that runs on several.
struct HostOptions {
  std::vector<HostSlots> hosts;  // empty: this host alone
  /// The program, with its arguments, that runs on each other host, at the same path, and calls
  /// run_host_agent().
  std::vector<std::string> agent;
  std::vector<std::string> exported;     // variables that processes elsewhere get
  std::vector<std::string> environment;  // "NAME=value", instead of LaunchOptions'
  std::string shared_file;               // must have the same content on all hosts; may be empty
  Duration patience = std::chrono::seconds(30);  // within which a host must answer
};

struct LaunchOptions {
  int ranks = 1;  // workers
  int servers = 0;
  bool evaluator = false;
  std::vector<std::string> command;      // program and its arguments
  std::vector<std::string> environment;  // "NAME=value", added to this process's own
  std::vector<int> inherit;              // descriptors that stay open in every rank
  /// Workers that train on their own end when rank 0 has ended with 0: its result is final.
  bool ends_with_rank0 = false;
  std::string log_dir;           // rank-K.log, server-K.log, evaluator.log
  std::optional<int> only_rank;  // print this rank's lines only
  Bind bind = Bind::Core;
  /// Rank 0 writes to this process's stdout and stderr directly, without prefix (needed for a
  /// progress line on a terminal); other ranks show stderr only. Not with log_dir.
  bool rank0_direct = false;
  std::string listen = "127.0.0.1";  // with several hosts: all addresses
  /// If not empty, the coordinator is a separate process, with its state in this store
  /// (rendezvous/coordinator/state_store.h), and is started again when it is killed.
  std::string store = {};
  /// The program, and its arguments, that calls run_coordinator_process().
  std::vector<std::string> coordinator = {};
  HostOptions elsewhere = {};
  Duration stop_grace = std::chrono::seconds(30);
  /// The evaluator is killed this long after the last worker's end.
  Duration evaluator_grace = std::chrono::seconds(30);
  int restarts = 32;
  std::optional<ElasticOptions> elastic;  // none: the ranks do not change
  std::optional<WorkerRange> range;       // not with `elastic`
  /// A file with the wanted number of ranks, read repeatedly while the job runs; may be empty.
  std::string wanted_file = {};
  bool handle_signals = true;
  /// Kills everything that still runs after this time. For tests.
  Duration time_limit = Duration::max();
  /// Gets the lines instead of stdout and stderr. Called by one thread at a time.
  std::function<void(int rank, bool error, std::string_view line)> on_line = {};
  /// Called when a process has started; `rank` is its number among all (rendezvous/roles.h).
  std::function<void(int rank, pid_t pid)> on_start = {};

  rendezvous::Roles roles() const noexcept {
    return {elastic ? elastic->max + elastic->spares : ranks, servers, evaluator,
            range ? range->max - ranks : 0};
  }
};

struct LaunchResult {
  int exit_code = 0;
  std::vector<int> exit_codes;  // by process; 128+n if signal n ended it, -1: never started
  std::optional<rendezvous::Failure> failure;  // the first
  int stop_signal = 0;                         // the signal that this process received
  bool out_of_time = false;                    // time_limit expired
  /// The line that run() prints last; "" after success.
  std::string last_line;
};

/// Throws ConfigError or ResourceError if nothing could be started.
LaunchResult launch(const LaunchOptions& options);
/// Called after a failed job: the options to start all processes again; nullopt ends the launch.
using Again = std::function<std::optional<LaunchOptions>(const LaunchResult& result)>;
/// Calls launch(), again while `again` wants it; prints errors and the last line. Returns the exit
/// code.
int run(LaunchOptions options, const Again& again = {});

}  // namespace trireme::inline v0::launch
