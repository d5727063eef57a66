// Checks a schedule before it runs and computes the memory that it needs, without knowing times.
//
// Semantics (docs/schedules.md): a Send starts, returns, and completes when its receive is posted
// (rendezvous); a Recv waits; a rank posts its receives in its order. A waiting rank is at its
// first incomplete receive, which is posted. So a send waits for ever only if a rank does, and one
// walk through the orders proves that no rank does, for any speeds and any buffering.
#pragma once

#include <string>
#include <vector>

#include "trireme/plan/schedule/schedule.h"

namespace trireme::inline v0::plan {

/// The needs of a rank at its worst moment.
struct RankPeak {
  /// Passes with live activations: from F (with recomputation: RC) to B or W. With v chunks per
  /// rank, a pass covers 1/v of the rank's layers.
  int activations = 0;
  /// At that kind's own worst moment: passes that wait only for W, and inputs kept for
  /// recomputation.
  int for_weights = 0, inputs = 0;
};

struct ScheduleReport {
  std::vector<std::string> faults;  // each with its grid; empty: the schedule can run
  std::vector<RankPeak> peaks;      // per rank; only without faults
};

/// Checks completeness (every stage runs every micro-batch forward and back, once), order (F before
/// B or I, I before W; weight gradients of a stage in ascending order of micro-batches, which the
/// tree sum needs), matching sends and receives, and absence of deadlock.
ScheduleReport inspect(const Schedule& schedule);
/// Returns the peaks. ConfigError with the first fault; `where` names the schedule.
std::vector<RankPeak> verify(const Schedule& schedule, const std::string& where);

}  // namespace trireme::inline v0::plan
