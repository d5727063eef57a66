#include "trireme/job/transport_check.h"

#include "trireme/base/error.h"
#include "trireme/base/transports.h"
#include "trireme/comm/choice/selection.h"

namespace trireme::inline v0::job {

void check_mpi(const std::string& transport, bool under_mpirun, int rank) {
  if (transport != "mpi" || under_mpirun) return;
  throw ConfigError("transport mpi needs ranks that mpirun started",
                    {.rank = rank,
                     .operation = "join",
                     .label = "comm.transport",
                     .advice = "Start it by mpirun, or use transport auto."});
}

void check_transport(const JobOptions& options, int ranks, bool under_mpirun) {
  check_mpi(options.transport, under_mpirun);
  comm::check_all_reduce(options.algorithm, {.ranks = ranks,
                                             .transport = options.transport,
                                             .can_map = maps_within_host(options.transport)});
}

}  // namespace trireme::inline v0::job
