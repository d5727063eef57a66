// ScalarTree: one number per micro-batch (the loss sum), added by the tree sum T in fp64.
#pragma once

#include <cstdint>
#include <vector>

#include "trireme/comm/communicator.h"
#include "trireme/parallel/data/plain_sync.h"

namespace trireme {
inline namespace v0 {
namespace parallel {

class ScalarTree {
 public:
  explicit ScalarTree(LeafPlan plan)
      : plan_(std::move(plan)), slots_(static_cast<std::size_t>(plan_.slots) + 1, 0.0) {}

  /// This rank's next leaf.
  void add(double leaf) {
    const LeafStep step = plan_.steps[next_++];
    double sum = leaf + 0.0;  // -0 becomes +0
    for (int k = step.merges; k-- > 0;) sum = slots_[static_cast<std::size_t>(step.slot + k)] + sum;
    slots_[static_cast<std::size_t>(step.slot)] = sum;
  }
  /// Starts the reduction; sum() is the whole batch's once the Work is done. This object must live
  /// and stay where it is until then.
  Work reduce(comm::Communicator& world, const ReduceTerms& how, std::string_view label) {
    std::vector<comm::Term> terms;
    for (std::size_t i = 0; i < plan_.terms.size(); ++i)
      terms.push_back(
          {Buffer::of(std::span(&slots_[i], 1)), plan_.terms[i].first, plan_.terms[i].count});
    return how(world, terms, plan_.total, Buffer::of(std::span(slots_.data(), 1)), label);
  }
  double sum() const { return slots_[0]; }

 private:
  LeafPlan plan_;
  std::vector<double> slots_;
  std::size_t next_ = 0;
};

}  // namespace parallel
}  // namespace v0
}  // namespace trireme
