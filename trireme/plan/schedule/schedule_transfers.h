// Rewrites a schedule of passes: adds sends and receives, or recomputation. Pure functions.
#pragma once

#include "trireme/plan/schedule/schedule.h"

namespace trireme::inline v0::plan {

/// Adds a send right after the pass that makes a value for another rank, and a receive right before
/// the pass that needs it. (The executor posts receives in this order, up to two ahead.)
/// Neighbouring stages on one rank, as in the middle of a V, need neither. A schedule that has
/// transfers is returned unchanged.
Schedule with_transfers(Schedule schedule);

/// Drops activations after each forward pass and recomputes them right before the backward pass
/// (Chen et al., "Training Deep Nets with Sublinear Memory Cost", arXiv 1604.06174): an RC before
/// every B and I. For an F+B, the RC of its B comes before the pair.
Schedule with_recompute(Schedule schedule);

}  // namespace trireme::inline v0::plan
