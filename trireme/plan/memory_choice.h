// Chooses for each block of a model whether to keep its activations, keep some of them, or
// recompute them, so that the model fits a memory limit at the least time. Pure functions.
//
// A knapsack with one choice per block, solved by its frontier of bytes and cost (Nemhauser and
// Ullmann, "Discrete dynamic programming and capital allocation", Management Science 15, 1969). It
// is solved once per possible peak of a single block's temporary memory; in Chen et al. 2016
// (arXiv:1604.06174) that peak is the second term of the memory of recomputation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace trireme::inline v0::plan {

/// One way to treat one block.
struct MemoryOption {
  std::int64_t stays = 0;  // bytes from its forward pass to its backward pass
  std::int64_t once = 0;   // bytes only during its own backward pass
  double cost = 0;         // time, in any unit
};

struct MemoryChoice {
  std::vector<std::size_t> option;  // per block
  std::int64_t bytes = 0;           // the sum of `stays`, plus the largest `once`
  double cost = 0;
};

/// The choice with the least cost that takes at most `limit` bytes; among equals, the fewest bytes.
/// nullopt if none fits. Exact unless the blocks have more than 20,000 undominated sums of sizes;
/// then the cost may be slightly higher, but the choice never exceeds `limit`.
std::optional<MemoryChoice> cheapest_within(std::span<const std::vector<MemoryOption>> blocks,
                                            std::int64_t limit);

}  // namespace trireme::inline v0::plan
