// JobOptions with the environment's values where the program left the default. Pure but for the
// getter; throws ConfigError for malformed values.
#pragma once

#include "trireme/job/job.h"
#include "trireme/launch/environment.h"

namespace trireme {
inline namespace v0 {
namespace job {

JobOptions resolve_options(JobOptions options,
                           const launch::Getenv& get = launch::process_environment);
/// More ranks than cores, as the launcher says or, under mpirun, as it looks from here.
bool share_cores(const launch::RankEnvironment& rank);
/// OMP_NUM_THREADS, else what the launcher gave, else what this process may use.
int resolve_cores(const launch::RankEnvironment& rank,
                  const launch::Getenv& get = launch::process_environment);

}  // namespace job
}  // namespace v0
}  // namespace trireme
