// Starts the ranks of a training job, here or on several hosts, and waits for them, or becomes a
// rank that another launcher (mpirun, srun, torchrun) has started.
#pragma once

#include <optional>

#include "trireme/launch/launch.h"
#include "trireme/plan/training_plan.h"
#include "trireme/rendezvous/launchers/environment.h"
#include "trireme/train/config/schema.h"
#include "trireme/train/config/worker_spec.h"

namespace trireme::inline v0::cli {

/// The environment variable that makes this program a rank: a WorkerSpec as text.
inline constexpr const char* kWorkerVariable = "TRIREME_WORKER_SPEC";

/// Runs this process's rank, server or evaluator. noexcept: its Job reports uncaught exceptions.
int run_process(Role role, int argc, char** argv, const train::WorkerSpec& spec) noexcept;

/// A single rank without servers and evaluator runs in this process. Otherwise every process is
/// started; those on other hosts must see the run's folder. Returns the job's exit code.
int start_ranks(const plan::PlannedJob& job, const launch::HostOptions& hosts,
                const train::Settings& settings, int argc, char** argv,
                const train::WorkerSpec& spec);

/// This process's rank and the number of ranks if mpirun, srun or torchrun started it. Processes of
/// mpirun meet over MPI here, so from now on the failure of one ends all.
std::optional<rendezvous::RankEnvironment> under_launcher();
/// Becomes a rank or a server of the launcher's job. Collective over them: all take rank 0's
/// `spec`.
int run_under_launcher(const rendezvous::RankEnvironment& place, int argc, char** argv,
                       const train::WorkerSpec& spec);

/// Rank 0, instead: the others end with `code`. Waits for them as long as for a peer. Under mpirun this
/// process's end does it.
void refuse_under_launcher(const rendezvous::RankEnvironment& place, int code) noexcept;

/// Becomes the evaluator of the launcher's job; `folder` is the run's.
int evaluate_under_launcher(int argc, char** argv, const std::string& folder);

}  // namespace trireme::inline v0::cli
