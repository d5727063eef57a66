#include "trireme/sync/buckets/leaf_plan.h"

#include <algorithm>

namespace trireme::inline v0::parallel {

LeafPlan make_leaf_plan(const kernel::LeafShares& leaves, int size, int rank) {
  const std::uint32_t total = leaves.total;
  LeafPlan plan;
  plan.leaves = leaves;
  plan.share = leaves.of(size, rank);
  std::vector<kernel::LeafRange>& open = plan.terms;
  for (std::uint32_t leaf = plan.share.first; leaf < plan.share.end(); ++leaf) {
    kernel::LeafRange node{leaf, 1};
    int merges = 0;
    while (!open.empty() && node.count < total && kernel::sibling(node, total) == open.back()) {
      node = {open.back().first, open.back().count + node.count};
      open.pop_back();
      ++merges;
    }
    plan.steps.push_back({static_cast<int>(open.size()), merges});
    open.push_back(node);
    plan.slots = std::max(plan.slots, static_cast<int>(open.size()));
  }
  return plan;
}

LeafPlan make_running_plan(const kernel::LeafShares& leaves, int size, int rank) {
  LeafPlan plan;
  plan.leaves.total = 0;
  for (int other = 0; other < size; ++other) {
    const std::uint32_t sums = leaves.of(size, other).count > 0 ? 1 : 0;
    if (other == rank && sums > 0) plan.terms = {{plan.leaves.total, 1}};
    plan.leaves.total += sums;
    plan.leaves.weights.push_back(sums);
  }
  if (plan.leaves.total == static_cast<std::uint32_t>(size)) plan.leaves.weights.clear();
  plan.share = leaves.of(size, rank);
  plan.steps.assign(plan.share.count, {.slot = 0, .merges = 1});
  if (!plan.steps.empty()) plan.steps.front().merges = 0;
  plan.slots = plan.steps.empty() ? 0 : 1;
  return plan;
}

int slots_needed(const kernel::LeafShares& leaves, int size) {
  int slots = 1;
  for (int rank = 0; rank < size; ++rank)
    slots = std::max(slots, make_leaf_plan(leaves, size, rank).slots);
  return slots;
}

}  // namespace trireme::inline v0::parallel
