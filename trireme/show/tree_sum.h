// `trireme show tree-sum`: which leaves of the tree sum (NUMERICS.md) are added in which order, by
// which rank, on several numbers of ranks, as it was recorded.
//
// Each rank adds the siblings among its own leaves (kernel::merges), and the all-reduce `tree` adds
// what is left over the simulated network. Leaf k brings 1 / (k + 3). Pure functions but for
// record_tree_sum().
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trireme/kernel/tree_sum.h"

namespace trireme {
inline namespace v0 {
namespace show {

struct TreeAddition {
  kernel::LeafRange node;  // its two children were added
  int rank = 0;            // that added them
  int step = 0;            // 1 = the first; behind its children, and what its rank added before
};

struct TreeSum {
  int ranks = 1;
  std::uint32_t leaves = 1;
  std::vector<kernel::LeafRange> share;  // of each rank
  std::vector<TreeAddition> additions;   // by step, then by node
  float sum = 0;                         // the same on every rank
  /// For comparison: each rank adds its leaves from left to right, then rank sums are added so.
  float in_rank_order = 0;

  int steps() const;
  /// Where the sum of `node` was made; a leaf's is the rank that has it.
  int rank_of(kernel::LeafRange node) const;
};

/// ConfigError where ranks or leaves are out of range.
TreeSum record_tree_sum(int ranks, std::uint32_t leaves);

/// "0", "2-3".
std::string text_of(kernel::LeafRange node);
/// "rank 1: 2-3 + 4-5 (from rank 2)": the additions of one step.
std::string step_text(const TreeSum& sum, int step);
std::string name_of(const std::vector<TreeSum>& sums);
std::string text_of(const std::vector<TreeSum>& sums);
std::string json_of(const std::vector<TreeSum>& sums);
std::string svg_of(const std::vector<TreeSum>& sums);
std::string html_of(const std::vector<TreeSum>& sums);

}  // namespace show
}  // namespace v0
}  // namespace trireme
