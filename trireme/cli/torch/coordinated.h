// Training as a process of an elastic job whose processes others start (`trireme coordinator`). The
// run's folder is on a disk that all of them share.
#pragma once

#include <optional>
#include <string>

#include "trireme/rendezvous/launchers/environment.h"
#include "trireme/train/config/worker_spec.h"

namespace trireme::inline v0::cli {

/// This process's place, if the environment gives it one.
std::optional<rendezvous::RankEnvironment> under_coordinator();

/// Process 0, with its `spec`, which it leaves in the run's folder.
int run_under_coordinator(const rendezvous::RankEnvironment& place, int argc, char** argv,
                          const train::WorkerSpec& spec);

/// Another process, which waits for that.
int follow_under_coordinator(const rendezvous::RankEnvironment& place, int argc, char** argv,
                             const std::string& folder);

}  // namespace trireme::inline v0::cli
