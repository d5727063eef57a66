// The down-sets of a directed graph: sets of nodes that hold with a node all it reads from. A cut
// of the graph into an earlier and a later part has one on its left.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace trireme {
inline namespace v0 {
namespace plan {

/// A set of node numbers.
class NodeSet {
 public:
  explicit NodeSet(std::size_t nodes) : words_((nodes + 63) / 64, 0) {}
  bool has(std::size_t node) const { return (words_[node / 64] >> (node % 64) & 1) != 0; }
  void add(std::size_t node) { words_[node / 64] |= std::uint64_t{1} << (node % 64); }
  /// Is every node of this one in `other`?
  bool within(const NodeSet& other) const {
    for (std::size_t i = 0; i < words_.size(); ++i) {
      if ((words_[i] & ~other.words_[i]) != 0) return false;
    }
    return true;
  }
  friend auto operator<=>(const NodeSet&, const NodeSet&) = default;

 private:
  std::vector<std::uint64_t> words_;
};

/// reads[n]: the nodes that n reads from.
using Reads = std::vector<std::vector<int>>;

/// A topological order: of the nodes that are ready the smallest number first. Shorter than `reads`
/// where there is a cycle.
std::vector<int> topological_order(const Reads& reads);

struct DownSets {
  std::vector<NodeSet> sets;  // by size, the empty set first and the whole one last
  bool all = true;            // every one there is
};
/// All of them, or, where there are more than `most`, the prefixes of topological orders that keep
/// few values open: greedy by `bytes` (of a node's output), then seeded ones.
DownSets down_sets(const Reads& reads, const std::vector<std::int64_t>& bytes, std::size_t most);

}  // namespace plan
}  // namespace v0
}  // namespace trireme
