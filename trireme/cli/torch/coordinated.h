// Training as a process of an elastic job whose processes others start (`trireme coordinator`). The
// run's folder is on a disk that all of them share.
#pragma once

#include <optional>
#include <string>

#include "trireme/rendezvous/launchers/environment.h"
#include "trireme/train/config/worker_spec.h"

namespace trireme::inline v0::cli {

/// This process's place in such a job; nullopt if the environment has none.
std::optional<rendezvous::RankEnvironment> under_coordinator();

/// Runs process 0, which leaves `spec` in the run's folder. Returns the exit code.
int run_under_coordinator(const rendezvous::RankEnvironment& place, int argc, char** argv,
                          const train::WorkerSpec& spec);

/// Runs another process, which first waits for that.
int follow_under_coordinator(const rendezvous::RankEnvironment& place, int argc, char** argv,
                             const std::string& folder);

}  // namespace trireme::inline v0::cli
