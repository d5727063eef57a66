// Runs the ranks of a training job as threads of this process over a simulated cluster.
#pragma once

#include "trireme/plan/tuning.h"
#include "trireme/train/worker_spec.h"

namespace trireme::inline v0::cli {

/// Each rank is a host with its own link, which costs `link`. The threads run one at a time, but
/// in parallel on the virtual clock. The weights equal those of any other transport. Returns the
/// job's exit code; throws the first error of a rank.
int simulate_ranks(int ranks, const plan::LinkCost& link, const train::WorkerSpec& spec);

}  // namespace trireme::inline v0::cli
