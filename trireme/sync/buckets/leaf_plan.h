// LeafPlan: how one rank adds the leaves of its contiguous share, as they come, into a small stack
// of slots, so that only siblings of the tree sum T are ever added (docs/numerics.md).
//
// Leaf i is added to the `merges` youngest open slots (its completed left siblings) and the result
// is stored in slot `slot`, the oldest of them. After the last leaf, slots 0 ... terms.size()-1
// hold the maximal nodes of the share. Example: leaves 0-3 of 4, all on one rank:
//
//     leaf 0 -> slot 0              leaf 1 + slot 0 -> slot 0
//     leaf 2 -> slot 1              leaf 3 + slot 1 + slot 0 -> slot 0
//
// A pure function of (leaves, size, rank).
#pragma once

#include <cstdint>
#include <vector>

#include "trireme/kernel/tree_sum.h"

namespace trireme::inline v0::parallel {

struct LeafStep {
  int slot = 0;    // where the sum goes
  int merges = 0;  // slots slot ... slot+merges-1 are added
};

struct LeafPlan {
  kernel::LeafShares leaves = 0;
  kernel::LeafRange share;
  std::vector<LeafStep> steps;           // one per leaf of the share
  std::vector<kernel::LeafRange> terms;  // term i is in slot i
  int slots = 0;                         // the most that are open at once
};

LeafPlan make_leaf_plan(const kernel::LeafShares& leaves, int size, int rank);
/// For train.reproducible = false, where the order of additions is free: leaves are added to one
/// running sum as they come, and each rank's sum is one term, if it has a leaf. Saves all slots but
/// one, and terms on the wire if the number of ranks is no power of two.
LeafPlan make_running_plan(const kernel::LeafShares& leaves, int size, int rank);
/// The most slots that any rank needs, at least 1: arenas have one size on all ranks.
int slots_needed(const kernel::LeafShares& leaves, int size);

}  // namespace trireme::inline v0::parallel
