// launch: starts N ranks of one program and supervises them until all have ended.
//
//   trireme launch -n 4 [--log-dir DIR] [--only-rank K] [--bind core|numa|none] -- PROGRAM ARGS...
//   trireme launch --workers 4 --servers 2 --evaluator 1 -- PROGRAM ARGS...
//   trireme launch -H node07:4,node08:4 -- PROGRAM ARGS...
//
// On other hosts it starts processes through ssh (remote_host.h). All hosts must be reached before
// the first process is started.
//
// With servers or an evaluator the job ends when all workers have: the others are told and, if they
// do not end by themselves, killed. The evaluator's failure is printed and ends nobody else. Neither
// does the end of a server whose shards others have, or of a worker that trains on its own
// (docs/servers.md): it is started again, `restarts` times in all.
//
// The coordinator, by which ranks meet and hear of failures, is a part of this process, or one of its own
// (`--store`), which may be killed (kept_coordinator.h).
//
// In an elastic job a process that is lost does not end the job: the others go on (elastic_group.h),
// and it is started again.
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

/// The hosts of a job on several.
struct HostOptions {
  std::vector<HostSlots> hosts;  // empty: this host alone
  /// Runs on each other host and calls run_host_agent(): a program that lies at the same path there,
  /// and its arguments.
  std::vector<std::string> agent;
  std::vector<std::string> exported;     // names of variables that processes elsewhere get
  std::vector<std::string> environment;  // "NAME=value", elsewhere instead of LaunchOptions'
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
  /// Workers that train on their own end when rank 0 has ended well: what they would still do is not
  /// in its result.
  bool ends_with_rank0 = false;
  std::string log_dir;           // rank-K.log, server-K.log, evaluator.log
  std::optional<int> only_rank;  // print this rank's lines only
  Bind bind = Bind::Core;
  /// Rank 0 writes to this process's stdout and stderr directly, without prefix (needed for a
  /// progress line on a terminal). Of the other ranks only stderr is shown. Not with log_dir.
  bool rank0_direct = false;
  std::string listen = "127.0.0.1";  // with several hosts: all addresses
  /// Not empty: the coordinator is a process of its own, with its state in this store
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
  /// A file with the number of ranks that the job is to have, looked at while it runs; may be empty.
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
/// After a job that has failed: how to start all of its processes again; nullopt: it has ended.
using Again = std::function<std::optional<LaunchOptions>(const LaunchResult& result)>;
/// Calls launch(), again where `again` says so, prints errors and the last line, and returns the exit
/// code.
int run(LaunchOptions options, const Again& again = {});

}  // namespace trireme::inline v0::launch
