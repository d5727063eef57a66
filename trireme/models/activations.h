// What a model's blocks hold in memory from their forward pass to their backward pass.
#pragma once

#include <cstdint>
#include <vector>

namespace trireme {
inline namespace v0 {
namespace models {

/// Bytes of one block over one micro-batch.
struct BlockActivations {
  std::int64_t kept = 0;
  std::int64_t probabilities = 0;  // of it, attention's, which it can do without
  std::int64_t inputs = 0;         // what it needs to run its forward pass again
  /// Of `kept`, what lies between layers that are cut among tensor-parallel ranks: each has it,
  /// unless it is cut along the sequence.
  std::int64_t whole = 0;
};

inline std::int64_t sum_of_kept(const std::vector<BlockActivations>& blocks) {
  std::int64_t sum = 0;
  for (const BlockActivations& block : blocks) sum += block.kept;
  return sum;
}

}  // namespace models
}  // namespace v0
}  // namespace trireme
