// The down-sets of a directed graph: sets that contain, with a node, every node that it reads from.
// The left side of a cut into an earlier and a later part is a down-set.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace trireme::inline v0::plan {

/// A set of node numbers.
class NodeSet {
 public:
  explicit NodeSet(std::size_t nodes) : words_((nodes + 63) / 64, 0) {}
  bool has(std::size_t node) const { return (words_[node / 64] >> (node % 64) & 1) != 0; }
  void add(std::size_t node) { words_[node / 64] |= std::uint64_t{1} << (node % 64); }
  /// True if every node of this set is in `other`.
  bool within(const NodeSet& other) const {
    for (std::size_t i = 0; i < words_.size(); ++i)
      if ((words_[i] & ~other.words_[i]) != 0) return false;
    return true;
  }
  friend auto operator<=>(const NodeSet&, const NodeSet&) = default;

 private:
  std::vector<std::uint64_t> words_;
};

/// reads[n]: the nodes that n reads from.
using Reads = std::vector<std::vector<int>>;

/// A topological order; among ready nodes, the smallest number comes first. Shorter than `reads` if
/// there is a cycle.
std::vector<int> topological_order(const Reads& reads);

struct DownSets {
  std::vector<NodeSet> sets;  // by size, from the empty set to the whole set
  bool all = true;            // false: only some of them
};
/// All down-sets if there are at most `most`. Otherwise the prefixes of some topological orders: a
/// greedy one that keeps few `bytes` of outputs open, topological_order() and random ones.
DownSets down_sets(const Reads& reads, const std::vector<std::int64_t>& bytes, std::size_t most);

}  // namespace trireme::inline v0::plan
