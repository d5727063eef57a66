// Finds this process's rank and job in the variables that its launcher set.
//
// Each kind of launcher has a reader (launchers.h), which says what it found and why. `trireme
// launch` decides alone. Otherwise launchers must agree on rank and size, unless one started the
// other (srun one torchrun on each host): then the inner one counts. If none states a rank, this
// process is alone, unless a reader refuses: processes that cannot be joined must not train side by
// side unnoticed. Pure functions of a getter.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "trireme/rendezvous/roles.h"

namespace trireme::inline v0::rendezvous {

/// The place at which ranks meet if their launcher provides no means of communication.
struct MeetingPlace {
  std::string name;        // equal on all ranks of this start, and unique: "srun 17.0"
  std::string host;        // rank 0's host, as other ranks reach it: "node07"
  std::uint16_t port = 0;  // the coordinator's, unless it is taken; 0: one that follows from `name`
  bool one_host = true;    // all ranks are on one host
  /// There may be an evaluator that the other processes do not know of.
  bool admits_evaluator = false;
};

struct RankEnvironment {
  int rank = 0, size = 1;  // within the role; `size` at the start
  Role role = Role::Worker;
  bool chief = false;  // the launcher calls rank 0 the chief
  int servers = 0;
  bool evaluator = false;
  int workers = 0;                     // 0: `size`
  int more_workers = 0;                // as in Roles
  int local_rank = 0, local_size = 1;  // the launcher's numbers; Job counts by the ranks' hosts
  std::string host;                    // this host's name; empty: the system's
  std::string coordinator;             // "127.0.0.1:40123"; empty: alone, or a foreign launcher
  std::string launcher;  // "mpirun (Open MPI)", "srun", "torchrun"; empty: none, or ours
  std::optional<MeetingPlace> meeting;  // for a foreign launcher; none: the ranks meet over MPI
  std::string job = "job";
  /// The job's ranks may change: `rank` is one of `size` possible ranks; the coordinator chooses.
  bool elastic = false;
  /// Workers (`workers` and `more_workers`) come at any time, train on their own, with servers, and
  /// meet nobody.
  bool on_its_own = false;
  /// The coordinator is beside server 0, whose process starts it (`trireme train` in an elastic
  /// TFJob).
  bool coordinator_beside_server = false;
  int restarts = 0;            // earlier processes that this one replaces
  int secret_descriptor = -1;  // -1: use secret_file
  std::string secret_file;
  int status_descriptor = -1;
  int cores = 0;              // from the launcher; 0: unknown
  bool shared_cores = false;  // more ranks than cores on this host

  Roles roles() const noexcept {
    return {workers > 0 ? workers : size, servers, evaluator, more_workers};
  }
  /// The coordinator's number of this process.
  int process() const noexcept { return roles().process_of(role, rank); }
  /// Whether this process started after the job began and meets nobody. In an elastic job a process
  /// meets the ranks of its first epoch.
  bool joins_later() const noexcept {
    return !elastic && (on_its_own || restarts > 0 || rank >= size);
  }
  /// Whether this process is to start the job's coordinator.
  bool starts_coordinator() const noexcept {
    return coordinator_beside_server && role == Role::Server && rank == 0;
  }
  /// Whether a launcher states several processes.
  bool several() const noexcept { return roles().processes() > 1; }
};

using Getenv = std::function<std::optional<std::string>(const char* name)>;
std::optional<std::string> process_environment(const char* name);

/// True in a batch script to which Slurm gave several tasks: srun has not started them.
bool in_batch_script(const Getenv& get = process_environment);

/// Removes the variables in which other launchers than `trireme launch` state the number of
/// processes; this process and its children then run alone. For commands that need no ranks or
/// start their own. Call it before other threads exist.
void ignore_launchers();

/// TRIREME_ENVIRONMENT names the launcher whose variables count: a key of launchers.h, or "alone".
/// Throws ConfigError (exit code 2) for malformed values, in a batch script with several tasks, if
/// two launchers disagree, and if the environment states several processes that cannot be joined.
RankEnvironment resolve_environment(const Getenv& get = process_environment);

/// resolve_environment() as text for people.
struct EnvironmentReport {
  std::string found;                 // "srun: rank 3 of 4", "none: one process", or the refusal
  std::vector<std::string> reasons;  // "srun: SLURM_PROCID=3, SLURM_NTASKS=4; rank 3 of 4"
};
EnvironmentReport report_environment(const Getenv& get = process_environment);

}  // namespace trireme::inline v0::rendezvous
