// memory.recompute = "auto": of each block of a model, what is kept and what is computed again, so
// that a limit of memory is kept at the least time. Starts nothing.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trireme/models/activations.h"

namespace trireme {
inline namespace v0 {
namespace train {

inline constexpr const char* kAutoRecompute = "auto";

struct AutoRecompute {
  std::string policy;  // "none", or a list as memory::parse_recompute() reads it
  std::string table;   // for people: a line for each run of like blocks; ends with a newline
};

/// Of blocks with these names, whose activations may take `room` bytes a micro-batch at a time.
/// Where nothing fits: what takes least.
AutoRecompute choose_recompute(const std::vector<models::BlockActivations>& blocks,
                               const std::vector<std::string>& names, std::int64_t room);

}  // namespace train
}  // namespace v0
}  // namespace trireme
