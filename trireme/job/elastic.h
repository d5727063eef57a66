// run_elastic: runs a training whose ranks may change (docs/elastic.md).
//
//     Job job(argc, argv);
//     return run_elastic(job, [&] {
//       Strategy strategy(job, ...);
//       Checkpointer checkpointer(job, "runs/mine");
//       checkpointer.add("train", strategy);
//       for (long step = checkpointer.resume(); step < steps; ++step) { ...; checkpointer.after(step); }
//       return 0;
//     });
//
// The function is called once in each epoch. It makes all that belongs to the ranks of the epoch anew;
// Checkpointer::resume() then takes the state from the ranks that have it.
#pragma once

#include <functional>

#include "trireme/base/error.h"
#include "trireme/job/job.h"

namespace trireme::inline v0 {

/// The ranks of an elastic job have agreed, at the end of a step, to regroup.
class RanksChanged : public Error {
 public:
  RanksChanged() : Error(ExitCode::PeerLost, "the ranks of the job change after this step") {}
};

/// Calls `body` until it returns, and again if it throws because the ranks have changed. Returns what
/// it returns. Other exceptions pass. In a job that is not elastic, calls it once.
int run_elastic(Job& job, const std::function<int()>& body);

}  // namespace trireme::inline v0
