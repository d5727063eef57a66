// Starts the ranks of a training job on this host and waits for them; or becomes one of those that
// another launcher has started.
#pragma once

#include <optional>

#include "trireme/launch/environment.h"
#include "trireme/train/trainer.h"

namespace trireme {
inline namespace v0 {
namespace cli {

/// The environment variable that makes this program a rank: a WorkerSpec as text.
inline constexpr const char* kWorkerVariable = "TRIREME_WORKER_SPEC";

/// One rank runs in this process; more are processes of their own. Returns the job's exit code.
int start_ranks(int ranks, int argc, char** argv, const train::WorkerSpec& spec);

/// Where mpirun, srun or torchrun started this process as one of several: which, and how many.
/// Those of mpirun meet over MPI, so that from here on the failure of one ends all.
std::optional<launch::RankEnvironment> under_launcher();
/// Collective over these processes: becomes a rank of their job, told what rank 0's `spec` says.
int run_under_launcher(const launch::RankEnvironment& place, int argc, char** argv,
                       const train::WorkerSpec& spec);

}  // namespace cli
}  // namespace v0
}  // namespace trireme
