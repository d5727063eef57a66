// run_ranks(n, body): runs n threads, one per rank, over the simulated network on a virtual clock.
//
// Deterministic for a seed: one rank runs at a time, and the seed picks which rank runs next and
// how long a message takes. No ports, no sleeps. An exception in a body fails the test with rank
// and seed. A deadlock (no rank can run, no message is in transit) throws in every blocked rank and
// names the waits.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "trireme/comm/simulate.h"

namespace trireme::inline v0::testing {

using RankContext = comm::SimulatedRank;

struct RunOptions {
  std::uint64_t seed = 1;
  std::string algorithm = "auto";
  Duration timeout = std::chrono::seconds(30);  // virtual
  bool reproducible = true;
};

void run_ranks(int size, const std::function<void(RankContext&)>& body, RunOptions options = {});

}  // namespace trireme::inline v0::testing
