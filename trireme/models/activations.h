// BlockActivations: the memory that each block of a model keeps between its forward and its
// backward pass, and the work of recomputing it.
#pragma once

#include <cstdint>
#include <vector>

namespace trireme::inline v0::models {

/// For one block and one micro-batch. Sizes are in bytes. Work is in floating-point operations, or
/// in seconds if no formula is known; all blocks of a model use the same unit. 0: unknown.
struct BlockActivations {
  std::int64_t kept = 0;
  std::int64_t probabilities = 0;  // attention's share of `kept`, which recomputation can avoid
  std::int64_t inputs = 0;         // what the forward pass needs to run again
  double forward_work = 0;         // of a forward pass
  double scores_work = 0;          // of recomputing the probabilities
  /// The share of `kept` between layers that tensor parallelism cuts. Every tensor-parallel rank
  /// keeps all of it, unless sequence parallelism cuts it too.
  std::int64_t whole = 0;
};

inline std::int64_t sum_of_kept(const std::vector<BlockActivations>& blocks) {
  std::int64_t sum = 0;
  for (const BlockActivations& block : blocks) sum += block.kept;
  return sum;
}

}  // namespace trireme::inline v0::models
