#include "trireme/sync/leaf_plan.h"

#include <algorithm>

namespace trireme::inline v0::parallel {

LeafPlan make_leaf_plan(std::uint32_t total, int size, int rank) {
  LeafPlan plan;
  plan.total = total;
  plan.share = kernel::contiguous_share(total, size, rank);
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

LeafPlan make_running_plan(std::uint32_t total, int size, int rank) {
  if (total < static_cast<std::uint32_t>(size)) return make_leaf_plan(total, size, rank);
  LeafPlan plan;
  plan.total = static_cast<std::uint32_t>(size);
  plan.share = kernel::contiguous_share(total, size, rank);
  plan.steps.assign(plan.share.count, {.slot = 0, .merges = 1});
  plan.steps.front().merges = 0;
  plan.terms = {{static_cast<std::uint32_t>(rank), 1}};
  plan.slots = 1;
  return plan;
}

int slots_needed(std::uint32_t total, int size) {
  int slots = 1;
  for (int rank = 0; rank < size; ++rank)
    slots = std::max(slots, make_leaf_plan(total, size, rank).slots);
  return slots;
}

}  // namespace trireme::inline v0::parallel
