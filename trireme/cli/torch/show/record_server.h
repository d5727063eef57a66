// Records the run that `trireme show server` draws. Workers and servers are the production code
// (ps::ParameterClient, ps::ParameterServer) on a simulated network, where each step of a worker
// takes a given time. So times are exact, and the same in every run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>

#include "trireme/base/clock.h"
#include "trireme/plan/tuning.h"
#include "trireme/show/server/server_run.h"
#include "trireme/sync/options.h"

namespace trireme::inline v0::cli {

struct ServerRunOptions {
  int workers = 4, servers = 2;
  ServerOptions server{.staleness = 2};
  std::map<int, double> slow = {};  // worker: how many times as long its steps take
  int steps = 10;  // drawn: the time in which a worker that never waits does so many
  Duration compute = std::chrono::milliseconds(10);  // of a step, on average
  double vary = 0.1;                                 // a step takes up to this much more or less
  std::size_t bytes = 256 << 10;                     // of the model
  plan::LinkCost link{50e-6, 5e-9};                  // one for each worker and server
  std::uint64_t seed = 1;
};

/// Also runs the synchronous and the asynchronous rule, for comparison. ConfigError if a number is
/// out of range.
show::ServerRun record_server(const ServerRunOptions& options);

}  // namespace trireme::inline v0::cli
