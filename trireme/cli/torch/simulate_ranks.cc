#include "trireme/cli/torch/simulate_ranks.h"

#include <exception>
#include <memory>

#include "trireme/net/sim/sim_network.h"
#include "trireme/train/trainer.h"

namespace trireme::inline v0::cli {

int simulate_ranks(int ranks, const plan::LinkCost& link, const train::WorkerSpec& spec) {
  train::set_up_training(spec);
  const auto alpha =
      std::chrono::duration_cast<Duration>(std::chrono::duration<double>(link.alpha));
  net::SimNetwork network(ranks, net::cluster(alpha, 1 / link.beta));
  auto tuning = std::make_shared<plan::Tuning>();
  tuning->links["sim"] = link;
  std::exception_ptr first;
  int code = 0;
  network.run([&](int rank) {
    try {
      code = train::run_simulated_rank(network.transport(rank), tuning, spec);
    } catch (...) {
      if (!first) first = std::current_exception();  // no race: one rank runs at a time
    }
  });
  if (first) std::rethrow_exception(first);
  return code;
}

}  // namespace trireme::inline v0::cli
