// FoldPlan: which terms each rank brings to a sum, and the additions that fold all of them.
#pragma once

#include <cstddef>
#include <map>
#include <vector>

#include "trireme/kernel/reduce.h"

namespace trireme::inline v0::comm {

struct FoldPlan {
  std::vector<std::vector<kernel::LeafRange>> nodes_of;  // per rank
  std::vector<kernel::FoldStep> steps;
  std::size_t most_terms = 1;  // the maximum over the ranks
};

FoldPlan make_fold_plan(const kernel::LeafShares& leaves, int size);

/// The plans of one group, each made once. Not thread safe.
class FoldPlans {
 public:
  explicit FoldPlans(int size) : size_(size) {}
  /// Valid as long as this object.
  const FoldPlan& of(const kernel::LeafShares& leaves);

 private:
  const int size_;
  std::map<kernel::LeafShares, FoldPlan> plans_;
};

}  // namespace trireme::inline v0::comm
