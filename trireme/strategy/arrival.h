// Arrival: which rank came last to a step's vote, and by how much. A pure function of what all ranks
// measured, so every rank names the same one.
#pragma once

#include <span>

#include "trireme/sync/agreement.h"

namespace trireme::inline v0::parallel {

struct Arrival {
  int rank = -1;      // -1: there is one rank only
  Duration behind{};  // the median of the other ranks (the lower of two)
};

/// Compares RankTime::busy. Of equal ranks, the lowest is last.
Arrival last_of(std::span<const RankTime> times);

}  // namespace trireme::inline v0::parallel
