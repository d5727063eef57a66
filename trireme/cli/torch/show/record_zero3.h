// Records the ZeRO-3 step that `trireme show zero3` draws. The ranks run the production code
// (Strategy over comm::simulate) on a stack of equal layers.
#pragma once

#include <cstdint>

#include "trireme/show/step/zero3.h"

namespace trireme::inline v0::cli {

struct Zero3Options {
  int ranks = 4, blocks = 4;
  int rounds = 1;  // micro-batches of each rank
  std::uint64_t seed = 1;
};

/// Throws ConfigError if ranks, blocks or rounds are out of range.
show::Zero3Recording record_zero3(const Zero3Options& options);

}  // namespace trireme::inline v0::cli
