// Runs all ranks as threads of this process over a simulated cluster.
#pragma once

#include <functional>
#include <memory>

#include "trireme/net/transport.h"
#include "trireme/plan/tuning.h"

namespace trireme::inline v0::cli {

using RankOfCluster = std::function<void(const std::shared_ptr<net::Transport>& transport,
                                         const std::shared_ptr<const plan::Tuning>& tuning)>;

/// Each rank is a host with its own link of cost `link`, which `tuning` holds, too. The threads run
/// one at a time, but in parallel on the virtual clock. Throws the first error of a rank.
void run_on_cluster(int ranks, const plan::LinkCost& link, const RankOfCluster& rank);

}  // namespace trireme::inline v0::cli
