// simulate(n, options, body): runs n ranks as threads over the simulated network, on a virtual
// clock, each with a Communicator. Used by `trireme show`, `trireme verify` and the unit tests.
//
// Deterministic for a seed: one rank runs at a time, and the seed decides which rank runs next and
// how long a message takes. No ports, no sleeps. A deadlock (no rank can run and no message is
// under way) throws net::DeadlockError in every rank, which says what each rank waits for. The
// first failure of a body is rethrown with its rank and the seed.
#pragma once

#include <functional>
#include <memory>

#include "trireme/comm/communicator.h"
#include "trireme/comm/communicator_options.h"
#include "trireme/net/sim/sim_network.h"
#include "trireme/net/transport.h"

namespace trireme::inline v0::comm {

struct SimulatedRank {
  int rank = 0;
  int size = 1;
  std::shared_ptr<Waiter> waiter;
  std::shared_ptr<net::Transport> transport;
  std::shared_ptr<Communicator> world;
};

struct SimulationOptions {
  net::SimOptions network;
  CommunicatorOptions world;
  /// Adapts `world` for one rank, for example to add an observer; may be empty.
  std::function<void(SimulatedRank& rank, CommunicatorOptions& world)> prepare = nullptr;
};

void simulate(int size, const SimulationOptions& options,
              const std::function<void(SimulatedRank&)>& body);

}  // namespace trireme::inline v0::comm
