// Simulates when each pass of a schedule runs, given the times of passes and messages.
//
// A rank runs one pass at a time, in its order, as soon as its inputs are there. A message adds
// latency on every hop between stages of different ranks and occupies no device; links are never
// congested. Pure functions.
//
// With the rules of Qi et al., "Zero Bubble Pipeline Parallelism", arXiv 2401.10241, section 5.3,
// it reproduces their printed bubble rates (the test quotes both tables).
#pragma once

#include <vector>

#include "trireme/plan/schedule/schedule.h"

namespace trireme::inline v0::plan {

/// Times of one micro-batch in one stage, in any one unit. B takes input + weight, RC takes
/// forward, F+B takes all three (its passes share the device; it hides only the communication
/// inside them).
struct StageTimes {
  double forward = 1, input = 1, weight = 1;
  double all() const noexcept { return forward + input + weight; }
};

struct PipelineTimes {
  std::vector<StageTimes> stages = {{}};  // one per stage, or one for all
  double message = 0;  // from a pass's end to when another rank can use its value
  const StageTimes& of(int stage) const {
    return stages[stages.size() == 1 ? 0 : static_cast<std::size_t>(stage)];
  }
};

struct TimedAction {
  Action action;
  double begin = 0, end = 0;
};

struct Timeline {
  std::vector<std::vector<TimedAction>> ranks;  // passes and recomputations, in order
  double end = 0;                               // end of the last pass; the first begins at 0
  /// The longest time of any rank from the start of its first pass to the end of its last.
  double cost = 0;
  /// (cost - work) / cost, where work is the mean busy time of a rank. For equal stages without
  /// recomputation it is the paper's (cost - m(T_F + T_B + T_W)) / cost.
  double bubble_rate = 0;
  double busy(int rank) const;
};

/// Simulates a schedule that verify() accepts. ConfigError for a deadlock, or if the times are not
/// one or one per stage, if a time is not in 0 ... 1e12, or if none is positive.
Timeline simulate(const Schedule& schedule, const PipelineTimes& times);

}  // namespace trireme::inline v0::plan
