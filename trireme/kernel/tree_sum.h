// The tree sum T (docs/numerics.md): the one order in which micro-batch leaves are added, on any
// number of ranks.
//
//     T(a, b) = leaf a                    if b - a = 1
//             = T(a, c) + T(c, b)         with c = a + floor((b - a) / 2)
//
// A *node* is a range that the recursion visits. Only siblings are ever added. Pure functions,
// thread safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace trireme::inline v0::kernel {

/// Leaves first ... first+count-1.
struct LeafRange {
  std::uint32_t first = 0, count = 0;
  std::uint32_t end() const noexcept { return first + count; }
  friend bool operator==(const LeafRange&, const LeafRange&) = default;
  friend auto operator<=>(const LeafRange&, const LeafRange&) = default;
};

/// True if `range` is a node of T(0, total).
bool is_node(LeafRange range, std::uint32_t total);
/// The other child of `node`'s parent; count 0 for the root.
LeafRange sibling(LeafRange node, std::uint32_t total);
/// The maximal nodes inside `range`, ascending; at most 2*ceil(log2(total)).
std::vector<LeafRange> maximal_nodes(LeafRange range, std::uint32_t total);
/// The contiguous share of rank `rank` of `size`. If size is a power of two, shares follow the same
/// halving, so a share is one node or empty; else floor(rank*total/size) ...
/// floor((rank+1)*total/size).
LeafRange contiguous_share(std::uint32_t total, int size, int rank);
/// The leaves of a sum, cut into one contiguous share for each rank of a group.
struct LeafShares {
  LeafShares(std::uint32_t leaves, std::vector<std::uint32_t> of_ranks = {})
      : total(leaves), weights(std::move(of_ranks)) {}
  std::uint32_t total = 1;
  /// Rank r has leaves floor(W(r)*total/W(size)) ... floor(W(r+1)*total/W(size)), where W(r) is the
  /// sum of the first r weights: if they add up to `total`, they are the counts. Empty: equal
  /// shares.
  std::vector<std::uint32_t> weights;
  LeafRange of(int size, int rank) const;
  friend bool operator==(const LeafShares&, const LeafShares&) = default;
  friend auto operator<=>(const LeafShares&, const LeafShares&) = default;
};
/// merges() replaces siblings in a set of disjoint nodes by their parent until none are left. It
/// returns the merges in an order that can be executed.
struct Merge {
  LeafRange left, right;
};
std::vector<Merge> merges(std::vector<LeafRange>& nodes, std::uint32_t total);

}  // namespace trireme::inline v0::kernel
