// Whether ranks can have the transport and the all-reduce that they ask for: one check for a Job
// and for whoever plans one.
#pragma once

#include <string>

#include "trireme/job/job.h"

namespace trireme {
inline namespace v0 {
namespace job {

/// Throws ConfigError where transport mpi was asked for and mpirun did not start the ranks.
void check_mpi(const std::string& transport, bool under_mpirun, int rank = -1);

/// The same and the algorithm, of `ranks` ranks of one host that do not run yet.
void check_transport(const JobOptions& options, int ranks, bool under_mpirun);

}  // namespace job
}  // namespace v0
}  // namespace trireme
