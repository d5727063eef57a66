// memory.recompute = "auto": chooses the recomputation policy of each block, so that activations
// fit into a memory limit at the least recomputation time. Starts nothing.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trireme/models/figures.h"

namespace trireme::inline v0::train {

inline constexpr const char* kAutoRecompute = "auto";

struct AutoRecompute {
  std::string policy;  // "none", or a list as memory::parse_recompute() reads it
  std::string table;   // to print: one line per run of equal blocks; ends with a newline
};

/// Chooses for `blocks`, called `names`, whose activations may take at most `room` bytes per
/// micro-batch. If nothing fits, chooses what takes the fewest bytes.
AutoRecompute choose_recompute(const std::vector<models::BlockActivations>& blocks,
                               const std::vector<std::string>& names, std::int64_t room);

}  // namespace trireme::inline v0::train
