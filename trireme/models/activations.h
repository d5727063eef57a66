// What a model's blocks hold in memory from their forward pass to their backward pass, and what it
// takes to compute that again.
#pragma once

#include <cstdint>
#include <vector>

namespace trireme {
inline namespace v0 {
namespace models {

/// Bytes of one block over one micro-batch, and work: floating-point operations, or seconds where
/// no formula is known, the same for all blocks of a model; 0: not known.
struct BlockActivations {
  std::int64_t kept = 0;
  std::int64_t probabilities = 0;  // of it, attention's, which it can do without
  std::int64_t inputs = 0;         // what it needs to run its forward pass again
  double forward_work = 0;         // of a forward pass
  double scores_work = 0;          // of it, to have the probabilities again
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
