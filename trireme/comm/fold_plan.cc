#include "trireme/comm/fold_plan.h"

#include <algorithm>
#include <utility>

namespace trireme::inline v0::comm {

FoldPlan make_fold_plan(const kernel::LeafShares& leaves, int size) {
  FoldPlan plan;
  std::vector<kernel::LeafRange> all;
  for (int rank = 0; rank < size; ++rank) {
    auto nodes = kernel::maximal_nodes(leaves.of(size, rank), leaves.total);
    plan.most_terms = std::max(plan.most_terms, nodes.size());
    all.insert(all.end(), nodes.begin(), nodes.end());
    plan.nodes_of.push_back(std::move(nodes));
  }
  plan.steps = kernel::fold_steps(all, leaves.total);
  return plan;
}

const FoldPlan& FoldPlans::of(const kernel::LeafShares& leaves) {
  auto at = plans_.find(leaves);
  if (at == plans_.end()) at = plans_.emplace(leaves, make_fold_plan(leaves, size_)).first;
  return at->second;
}

}  // namespace trireme::inline v0::comm
