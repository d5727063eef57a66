// simulate(n, options, body): n ranks as threads of this process over the simulated network, on a
// virtual clock, each with a Communicator: what `trireme show` and `trireme verify` and the unit
// tests run on.
//
// Deterministic for a seed: one rank runs at a time, and the seed picks who runs next and how long
// a message takes. No ports, no sleeps. A deadlock (nobody can run and no message is under way)
// throws net::DeadlockError in every rank, naming who waits for what. The first failure of a body
// is rethrown with its rank and the seed.
#pragma once

#include <functional>
#include <memory>

#include "trireme/comm/communicator.h"
#include "trireme/net/sim/sim_network.h"
#include "trireme/net/transport.h"

namespace trireme {
inline namespace v0 {
namespace comm {

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
  /// Changes `world` for one rank (an observer of its own); may be empty.
  std::function<void(SimulatedRank& rank, CommunicatorOptions& world)> prepare = nullptr;
};

void simulate(int size, const SimulationOptions& options,
              const std::function<void(SimulatedRank&)>& body);

}  // namespace comm
}  // namespace v0
}  // namespace trireme
