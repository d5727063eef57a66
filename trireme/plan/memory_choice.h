// Which way of treating each block of a model fits into a limit of memory and costs least time:
// keep its activations, keep a part of them, compute them again. Pure functions.
//
// A knapsack with one choice a block, solved by its frontier of bytes and cost (Nemhauser and
// Ullmann, "Discrete dynamic programming and capital allocation", Management Science 15, 1969),
// once for each size that the largest block in work may have: in Chen et al. 2016
// (arXiv:1604.06174) that size is the second term of the memory that recomputation takes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace trireme {
inline namespace v0 {
namespace plan {

/// One way to treat one block.
struct MemoryOption {
  std::int64_t stays = 0;  // bytes from its forward pass to its backward pass
  std::int64_t once = 0;   // bytes while its backward pass runs, when no other block has such
  double cost = 0;         // time, in any unit
};

struct MemoryChoice {
  std::vector<std::size_t> option;  // of each block
  std::int64_t bytes = 0;           // all that stays, and the most that is there once
  double cost = 0;
};

/// The least cost of all choices that take at most `limit` bytes; of equal ones the fewest bytes.
/// nullopt where none fits. Exact, but for models whose blocks have more than 20,000 undominated
/// sums of sizes: then it may cost a little more, and never takes more than `limit`.
std::optional<MemoryChoice> cheapest_within(std::span<const std::vector<MemoryOption>> blocks,
                                            std::int64_t limit);

}  // namespace plan
}  // namespace v0
}  // namespace trireme
