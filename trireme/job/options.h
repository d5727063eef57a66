// Fills JobOptions from the environment where the program left defaults. Pure except for the
// getter. Throws ConfigError for malformed values.
#pragma once

#include "trireme/job/job.h"
#include "trireme/rendezvous/launchers/environment.h"

namespace trireme::inline v0::job {

JobOptions resolve_options(JobOptions options,
                           const rendezvous::Getenv& get = rendezvous::process_environment);
/// True if there are more ranks than cores: by the launcher's word, or under mpirun by counting.
bool share_cores(const rendezvous::RankEnvironment& rank);
/// OMP_NUM_THREADS; otherwise the launcher's number; otherwise the cores that this process may use.
int resolve_cores(const rendezvous::RankEnvironment& rank,
                  const rendezvous::Getenv& get = rendezvous::process_environment);

}  // namespace trireme::inline v0::job
