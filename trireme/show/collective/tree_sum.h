// `trireme show tree-sum`: a recording of which rank adds which leaves of the tree sum
// (docs/numerics.md) in which order, on several numbers of ranks.
//
// Each rank adds the siblings among its own leaves (kernel::merges), and the all-reduce `tree` adds
// the rest over the simulated network. Leaf k is 1 / (k + 3). Pure functions except
// record_tree_sum().
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trireme/kernel/tree_sum.h"

namespace trireme::inline v0::show {

struct TreeAddition {
  kernel::LeafRange node;  // the sum of its two children
  int rank = 0;            // the rank that added them
  int step = 0;            // from 1; after its children, and after its rank's earlier additions
};

struct TreeSum {
  int ranks = 1;
  std::uint32_t leaves = 1;
  std::vector<kernel::LeafRange> share;  // of each rank
  std::vector<TreeAddition> additions;   // by step, then by node
  float sum = 0;                         // the same on every rank
  /// For comparison: each rank adds its leaves from left to right, then the ranks' sums likewise.
  float in_rank_order = 0;

  int steps() const;
  /// The rank that computed the sum of `node`; for a leaf, the rank that has it.
  int rank_of(kernel::LeafRange node) const;
};

/// ConfigError if ranks or leaves are out of range.
TreeSum record_tree_sum(int ranks, std::uint32_t leaves);

/// The children of a node of several leaves.
kernel::LeafRange left_of(kernel::LeafRange node);
kernel::LeafRange right_of(kernel::LeafRange node);
/// "0", "2-3".
std::string text_of(kernel::LeafRange node);
/// "rank 1: 2-3 + 4-5 (from rank 2)": the additions of one step.
std::string step_text(const TreeSum& sum, int step);
/// The sum's value and bits, and those of rank order.
std::string sum_text(const TreeSum& sum);
std::string name_of(const std::vector<TreeSum>& sums);
std::string text_of(const std::vector<TreeSum>& sums);
std::string json_of(const std::vector<TreeSum>& sums);
std::string svg_of(const std::vector<TreeSum>& sums);
std::string html_of(const std::vector<TreeSum>& sums);

}  // namespace trireme::inline v0::show
