// Where a process learns which rank of which job it is: one resolver per way of starting.
//
// Order: our own launcher; mpirun; torchrun; srun; launchers whose ranks cannot be joined (refused,
// so that n copies never train silently side by side); alone. Pure functions over a getter, for
// tests.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace trireme {
inline namespace v0 {
namespace launch {

/// Where ranks find one another whose launcher gives them no meeting place.
struct MeetingPlace {
  std::string name;      // the same on all ranks of this start, and in no other: "srun 17.0"
  std::string host;      // rank 0's, as the others reach it: "node07"
  bool one_host = true;  // all ranks are on it
};

struct RankEnvironment {
  int rank = 0, size = 1;
  int local_rank = 0, local_size = 1;   // as the launcher says; Job counts by the ranks' hosts
  std::string host;                     // name of this host; empty: the system's
  std::string coordinator;              // "127.0.0.1:40123"; empty: alone, or a foreign launcher's
  std::string launcher;                 // "mpirun (Open MPI)", "srun", "torchrun"; empty: none
  std::optional<MeetingPlace> meeting;  // of a foreign launcher; none: the ranks meet over MPI
  std::string job = "job";
  std::uint32_t epoch = 0;
  int secret_descriptor = -1;  // else the file
  std::string secret_file;
  int status_descriptor = -1;
  int cores = 0;              // that the launcher gives this rank; 0: not said
  bool shared_cores = false;  // more ranks than cores on this host
};

using Getenv = std::function<std::optional<std::string>(const char* name)>;
std::optional<std::string> process_environment(const char* name);

/// True in a batch script to which Slurm gave several tasks: it is one process, and srun has
/// started none of them.
bool in_batch_script(const Getenv& get = process_environment);

/// Takes out of this process's environment by what mpirun, torchrun and srun say how many processes
/// they have started: from here on it is alone, and its children too. For commands that need no
/// ranks or start their own. Before there are other threads.
void ignore_launchers();

/// The first of a list as Slurm writes it: "node07" of "node[07-09,12],gpu1".
std::string first_host(const std::string& node_list);

/// Throws ConfigError (exit 2) for malformed values, in a batch script of several tasks, and where
/// the environment speaks of several processes that cannot be joined.
RankEnvironment resolve_environment(const Getenv& get = process_environment);

}  // namespace launch
}  // namespace v0
}  // namespace trireme
