// Reads each kind of launcher's variables: one reader for each kind, and the list of readers. A new
// launcher is one reader and one line of the list. Pure functions of a getter.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "trireme/base/error.h"
#include "trireme/rendezvous/launchers/environment.h"

namespace trireme::inline v0::rendezvous {

/// The variables of one kind of launcher, read.
struct Reading {
  std::string why;                      // "RANK=3, WORLD_SIZE=4"; empty: no variable of it is set
  std::optional<RankEnvironment> rank;  // of several; none: this process is alone, or `refusal`
  std::optional<ConfigError> refusal;   // malformed, or several processes that cannot be joined
  bool incomplete = false;              // `refusal` counts only if no launcher states a rank
};

struct Launcher {
  const char* key;   // in TRIREME_ENVIRONMENT: "openmpi"
  const char* name;  // "mpirun (Open MPI)"
  /// Another launcher may start this one in each of its processes, to start the ranks.
  bool nests;
  const char* variables[2];  // they state several processes; the second may be null
  /// Sets `why`. nullopt if the launcher has not started this process, or only this one. Throws
  /// ConfigError.
  std::optional<RankEnvironment> (*read)(const Getenv& get, std::string& why);
};

Reading read_launcher(const Launcher& launcher, const Getenv& get);
/// `trireme launch`. Its ranks have no `RankEnvironment::launcher`.
extern const Launcher kOwnLauncher;
/// All others, the more specific ones first.
std::span<const Launcher> foreign_launchers();

/// The first host of a Slurm list: "node07" for "node[07-09,12],gpu1".
std::string first_host(const std::string& node_list);

}  // namespace trireme::inline v0::rendezvous
