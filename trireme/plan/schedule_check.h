// What must hold of a schedule before it runs, and what it needs: proved without times.
//
// Semantics (docs/schedules.md): a Send starts and returns and completes when its receive is posted
// (rendezvous); a Recv waits; a rank posts its receives in its order. A rank that waits is at the
// first receive it has not completed, which is posted: so no send waits for ever unless a rank
// does, and one walk through the orders proves that none does, for any speeds and any buffering.
#pragma once

#include <string>
#include <vector>

#include "trireme/plan/schedule.h"

namespace trireme {
inline namespace v0 {
namespace plan {

/// What a rank needs at its worst moment.
struct RankPeak {
  /// Passes whose activations are alive, from F (with recomputation: RC) to B or W. A pass of a
  /// rank with v chunks is a v-th of its layers.
  int activations = 0;
  /// Of those at that kind's own worst moment: what waits for W alone, and (recomputed) the kept
  /// inputs.
  int for_weights = 0, inputs = 0;
  /// Open nodes of the tree sum of one stage's weight gradients: each is as large as the weights.
  int open_sums = 0;
};

struct ScheduleReport {
  std::vector<std::string> faults;  // each with the grid and the cell marked; empty: it may run
  std::vector<RankPeak> peaks;      // of each rank; of a schedule without faults
};

/// Completeness (every stage takes every micro-batch forward and back, once), order (F before B or
/// I, I before W; weight gradients of a stage in ascending order of micro-batches, which the tree
/// sum needs), matching sends and receives, no deadlock.
ScheduleReport inspect(const Schedule& schedule);
/// ConfigError with the first fault; `where` names the schedule. Gives the peaks.
std::vector<RankPeak> verify(const Schedule& schedule, const std::string& where);

}  // namespace plan
}  // namespace v0
}  // namespace trireme
