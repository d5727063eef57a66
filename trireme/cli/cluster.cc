#include "trireme/cli/cluster.h"

#include "trireme/net/sim/sim_network.h"

namespace trireme::inline v0::cli {

void run_on_cluster(int ranks, const plan::LinkCost& link, const RankOfCluster& rank) {
  const auto alpha = from_seconds(link.alpha);
  net::SimNetwork network(ranks, net::cluster(alpha, 1 / link.beta));
  const auto tuning = std::make_shared<plan::Tuning>();
  tuning->links["sim"] = link;
  network.run([&](int number) { rank(network.transport(number), tuning); });
}

}  // namespace trireme::inline v0::cli
