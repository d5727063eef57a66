// Server 0 of an elastic TFJob. No process of such a job is there for all the others but its servers,
// so the coordinator is a process beside server 0: ps 0's process starts both, passes signals on to
// the server, and starts a killed coordinator again.
#pragma once

#include "trireme/base/config/config.h"
#include "trireme/rendezvous/launchers/environment.h"

namespace trireme::inline v0::cli {

/// Runs the coordinator, and argv again as server 0. Returns the exit code. The coordinator listens at
/// the port of `place.coordinator`; the least number of workers (elastic.min; 1 if unset) and the
/// store (rendezvous.store) are those of `config`. Throws ConfigError if its elastic.* contradict
/// `place`. Call it on the main thread, before other threads exist.
int run_beside_coordinator(const rendezvous::RankEnvironment& place, const config::Config& config,
                           int argc, char** argv);

}  // namespace trireme::inline v0::cli
