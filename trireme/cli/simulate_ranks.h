// Runs the ranks of a training job as threads of this process over a simulated cluster.
#pragma once

#include "trireme/plan/tuning.h"
#include "trireme/train/worker_spec.h"

namespace trireme {
inline namespace v0 {
namespace cli {

/// Every rank has a link of its own to all others. Ranks take turns here and compute side by side
/// on the virtual clock; weights are those of any other transport. Returns the job's exit code; the
/// first error of a rank is thrown.
int simulate_ranks(int ranks, const plan::LinkCost& link, const train::WorkerSpec& spec);

}  // namespace cli
}  // namespace v0
}  // namespace trireme
