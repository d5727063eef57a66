#include "trireme/kernel/tree_sum.h"

#include <algorithm>
#include <bit>

#include "trireme/base/check.h"

namespace trireme::inline v0::kernel {
namespace {

std::uint32_t middle(LeafRange node) noexcept { return node.first + node.count / 2; }
LeafRange left_child(LeafRange node) noexcept { return {node.first, node.count / 2}; }
LeafRange right_child(LeafRange node) noexcept {
  return {middle(node), node.count - node.count / 2};
}

bool contains(LeafRange outer, LeafRange inner) noexcept {
  return outer.first <= inner.first && inner.end() <= outer.end();
}

void collect(LeafRange node, LeafRange range, std::vector<LeafRange>& nodes) {
  if (node.end() <= range.first || range.end() <= node.first) return;
  if (contains(range, node)) {
    nodes.push_back(node);
    return;
  }
  collect(left_child(node), range, nodes);
  collect(right_child(node), range, nodes);
}

}  // namespace

bool is_node(LeafRange range, std::uint32_t total) {
  return maximal_nodes(range, total) == std::vector{range};
}

LeafRange sibling(LeafRange node, std::uint32_t total) {
  LeafRange parent{0, total};
  while (contains(parent, node) && parent.count > 1) {
    const LeafRange left = left_child(parent), right = right_child(parent);
    if (left == node) return right;
    if (right == node) return left;
    parent = node.first < middle(parent) ? left : right;
  }
  return {};
}

std::vector<LeafRange> maximal_nodes(LeafRange range, std::uint32_t total) {
  std::vector<LeafRange> nodes;
  if (range.count > 0 && total > 0) collect({0, total}, range, nodes);
  return nodes;
}

LeafRange contiguous_share(std::uint32_t total, int size, int rank) {
  TRIREME_CHECK(size > 0);
  TRIREME_CHECK(rank >= 0);
  TRIREME_CHECK(rank < size);
  if (!std::has_single_bit(static_cast<unsigned>(size))) {
    const auto cut = [&](int r) {
      return static_cast<std::uint32_t>(std::uint64_t(r) * total / std::uint64_t(size));
    };
    return {cut(rank), cut(rank + 1) - cut(rank)};
  }
  LeafRange share{0, total};
  for (int half = size / 2; half > 0; half /= 2) {
    share = (rank & half) == 0 ? left_child(share) : right_child(share);
  }
  return share;
}

LeafRange LeafShares::of(int size, int rank) const {
  if (weights.empty()) return contiguous_share(total, size, rank);
  TRIREME_CHECK(weights.size() == static_cast<std::size_t>(size));
  std::uint64_t sum = 0, before = 0;
  for (int r = 0; r < size; ++r) {
    if (r == rank) before = sum;
    sum += weights[static_cast<std::size_t>(r)];
  }
  TRIREME_CHECK(sum > std::uint64_t{0});
  const auto cut = [&](std::uint64_t weight) {
    return static_cast<std::uint32_t>(weight * total / sum);
  };
  const std::uint32_t first = cut(before);
  return {first, cut(before + weights[static_cast<std::size_t>(rank)]) - first};
}

std::vector<Merge> merges(std::vector<LeafRange>& nodes, std::uint32_t total) {
  std::sort(nodes.begin(), nodes.end());
  std::vector<Merge> result;
  std::vector<LeafRange> open;  // siblings are neighbours, so a stack finds them all
  for (const LeafRange& node : nodes) {
    open.push_back(node);
    while (open.size() > 1) {
      const LeafRange left = open[open.size() - 2], right = open.back();
      if (sibling(left, total) != right) break;
      result.push_back({left, right});
      open.pop_back();
      open.back() = {left.first, left.count + right.count};
    }
  }
  nodes = std::move(open);
  return result;
}

}  // namespace trireme::inline v0::kernel
