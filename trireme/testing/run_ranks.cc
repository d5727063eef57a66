#include "trireme/testing/run_ranks.h"

namespace trireme::inline v0::testing {

void run_ranks(int size, const std::function<void(RankContext&)>& body, RunOptions options) {
  comm::SimulationOptions simulation;
  simulation.network.seed = options.seed;
  simulation.world.algorithm = options.algorithm;
  simulation.world.timeout = options.timeout;
  simulation.world.reproducible = options.reproducible;
  comm::simulate(size, simulation, body);
}

}  // namespace trireme::inline v0::testing
