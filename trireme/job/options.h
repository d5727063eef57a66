// Fills JobOptions from the environment where the program left defaults, and checks them. Pure
// except for the getter. Throws ConfigError for malformed values.
#pragma once

#include <string>

#include "trireme/job/job.h"
#include "trireme/rendezvous/launchers/environment.h"

namespace trireme::inline v0::job {

JobOptions resolve_options(JobOptions options,
                           const rendezvous::Getenv& get = rendezvous::process_environment);
/// True if there are more ranks than cores: as the launcher says, or under mpirun by counting.
bool share_cores(const rendezvous::RankEnvironment& rank);
/// OMP_NUM_THREADS; otherwise the launcher's number; otherwise this process's share of the cores.
int resolve_cores(const rendezvous::RankEnvironment& rank,
                  const rendezvous::Getenv& get = rendezvous::process_environment);

/// Throws ConfigError if transport mpi was requested but mpirun did not start the ranks.
void check_mpi(const std::string& transport, bool under_mpirun, int rank = -1);
/// The same, and the all-reduce algorithm, for `ranks` ranks on one host that do not run yet.
void check_transport(const JobOptions& options, int ranks, bool under_mpirun);

}  // namespace trireme::inline v0::job
