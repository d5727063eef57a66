// When each pass of a schedule runs, given how long passes and messages take.
//
// A rank does one pass at a time, in its order, as soon as what it needs is there. A message is
// latency on every hop between stages of different ranks and occupies no device; links do not get
// crowded. Pure functions.
//
// With the rules of Qi et al., "Zero Bubble Pipeline Parallelism", arXiv 2401.10241, section 5.3,
// it gives their printed bubble rates (the test quotes both tables).
#pragma once

#include <vector>

#include "trireme/plan/schedule.h"

namespace trireme {
inline namespace v0 {
namespace plan {

/// Of one micro-batch in one stage, in any one unit. B takes input + weight, RC takes forward, F+B
/// takes all three (its two passes share the device; what it hides is communication inside them).
struct StageTimes {
  double forward = 1, input = 1, weight = 1;
  double all() const noexcept { return forward + input + weight; }
};

struct PipelineTimes {
  std::vector<StageTimes> stages = {{}};  // one for each stage, or one for all
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
  double end = 0;                               // of the last pass; the first begins at 0
  /// The largest time of a rank from the start of its first pass to the end of its last.
  double cost = 0;
  /// (cost - work) / cost, where work is how long a rank is busy, on average over the ranks. For
  /// equal stages without recomputation it is the paper's (cost - m(T_F + T_B + T_W)) / cost.
  double bubble_rate = 0;
  double busy(int rank) const;
};

/// Of a schedule that verify() accepts. ConfigError if it is a deadlock or if times do not fit it:
/// neither one nor one a stage, negative, or none positive.
Timeline simulate(const Schedule& schedule, const PipelineTimes& times);

}  // namespace plan
}  // namespace v0
}  // namespace trireme
