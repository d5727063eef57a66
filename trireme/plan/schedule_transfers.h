// Rewrites a schedule of passes: with its sends and receives, or with recomputation. Pure
// functions.
#pragma once

#include "trireme/plan/schedule.h"

namespace trireme {
inline namespace v0 {
namespace plan {

/// A send right behind the pass that makes a value which another rank needs, a receive right before
/// the pass that needs it. (The executor posts receives in this order, up to two ahead.) Neighbours
/// on one rank, the middle of a V, hand over without.
/// A schedule that has transfers is returned as it is.
Schedule with_transfers(Schedule schedule);

/// Activations are dropped after each forward pass and computed again right before the backward one
/// (Chen et al., "Training Deep Nets with Sublinear Memory Cost", arXiv 1604.06174): an RC before
/// every B and I. Of an F+B the B's comes before the pair.
Schedule with_recompute(Schedule schedule);

}  // namespace plan
}  // namespace v0
}  // namespace trireme
