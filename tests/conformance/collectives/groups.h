// Groups of ranks over any transport; each rank is a thread with its own Waiter. For this suite.
#pragma once

#include <functional>
#include <string>

#include "trireme/comm/communicator.h"
#include "trireme/comm/communicator_options.h"

namespace trireme::test {

struct Group {
  std::string transport, algorithm;  // sim, shm, tcp, mixed (two ranks per host)
  int size = 2;
  std::uint64_t seed = 1;  // sim
  /// For real transports: changes one rank's options; may be empty.
  std::function<void(int rank, comm::CommunicatorOptions& options)> prepare = nullptr;
};

/// Runs `body` on every rank; the first exception is rethrown here.
void run_group(const Group& group, const std::function<void(comm::Communicator&)>& body);

/// Real transports run on a machine with few cores, so they get fewer ranks.
inline int most_ranks(const std::string& transport) { return transport == "sim" ? 8 : 5; }

}  // namespace trireme::test
