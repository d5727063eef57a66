// Checks whether ranks can use the transport and the all-reduce algorithm that they ask for. Shared
// by Job and by planners.
#pragma once

#include <string>

#include "trireme/job/job.h"

namespace trireme::inline v0::job {

/// Throws ConfigError if transport mpi was requested but mpirun did not start the ranks.
void check_mpi(const std::string& transport, bool under_mpirun, int rank = -1);

/// The same, and the algorithm, for `ranks` ranks on one host that do not run yet.
void check_transport(const JobOptions& options, int ranks, bool under_mpirun);

}  // namespace trireme::inline v0::job
