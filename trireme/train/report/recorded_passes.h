// The pipeline passes of a run's last step, from its trace, for `trireme show schedule --recorded`.
#pragma once

#include <span>
#include <string>

#include "trireme/observe/trace.h"

namespace trireme::inline v0::train {

/// JSON lines {"event": "pass", "rank": 0, "pass": "F0.1", "begin": 0.01, "end": 0.02} of the
/// pipeline of rank 0; times are seconds on rank 0's clock. "rank" is the position in the pipeline;
/// each position has `stage_ranks` ranks.
std::string recorded_passes(std::span<const observe::RankTrace> traces, int stage_ranks);

}  // namespace trireme::inline v0::train
