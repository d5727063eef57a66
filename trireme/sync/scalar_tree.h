// ScalarTree: one number per micro-batch (the loss sum), added by the tree sum T in fp64.
//
// Contiguous shares are reduced as terms, like gradients. Where micro-batches are interleaved over
// the ranks, every rank gathers all numbers and adds them itself.
#pragma once

#include <cstdint>
#include <vector>

#include "trireme/comm/communicator.h"
#include "trireme/kernel/assignment.h"
#include "trireme/sync/levels/plain_sync.h"

namespace trireme::inline v0::parallel {

class ScalarTree {
 public:
  ScalarTree(std::uint32_t total, const kernel::Assignment& assignment, int rank)
      : assignment_(assignment),
        total_(total),
        plan_(assignment.members == 1
                  ? make_leaf_plan(shares_of(assignment, total), assignment.groups, rank)
                  : make_leaf_plan(total, 1, 0)),
        slots_(static_cast<std::size_t>(plan_.slots) + 1, 0.0) {}

  /// This rank's next leaf.
  void add(double leaf) {
    if (assignment_.members == 1) {
      add_next(leaf);
    } else {
      mine_.push_back(leaf);
    }
  }
  /// Starts the reduction. Once the Work is done, sum() is the whole batch's. Until then this
  /// object must live and not move.
  Work reduce(comm::Communicator& world, const ReduceTerms& how, std::string_view label) {
    if (assignment_.members > 1) return gather(world, label);
    std::vector<comm::Term> terms;
    for (std::size_t i = 0; i < plan_.terms.size(); ++i)
      terms.push_back(
          {Buffer::of(std::span(&slots_[i], 1)), plan_.terms[i].first, plan_.terms[i].count});
    return how(world, terms, plan_.leaves, Buffer::of(std::span(slots_.data(), 1)), label);
  }
  double sum() {
    if (assignment_.members > 1 && next_ == 0) add_gathered();
    return slots_[0];
  }

 private:
  void add_next(double leaf) {
    const LeafStep step = plan_.steps[next_++];
    double sum = leaf + 0.0;  // -0 becomes +0
    for (int k = step.merges; k-- > 0;) sum = slots_[static_cast<std::size_t>(step.slot + k)] + sum;
    slots_[static_cast<std::size_t>(step.slot)] = sum;
  }

  Work gather(comm::Communicator& world, std::string_view label) {
    std::vector<std::size_t> counts;
    for (int rank = 0; rank < world.size(); ++rank)
      counts.push_back(leaves_of(assignment_, total_, rank).size());
    mine_.resize(counts[static_cast<std::size_t>(world.rank())], 0.0);
    all_.resize(total_);
    return world.all_gather_v(Buffer::of(std::span(mine_)), Buffer::of(std::span(all_)), counts,
                              {.label = label});
  }

  void add_gathered() {
    std::vector<double> leaves(total_);
    std::size_t at = 0;
    for (int rank = 0; rank < assignment_.size(); ++rank)
      for (const std::uint32_t leaf : leaves_of(assignment_, total_, rank))
        leaves[leaf] = all_[at++];
    for (const double leaf : leaves) add_next(leaf);
  }

  kernel::Assignment assignment_;
  std::uint32_t total_;
  LeafPlan plan_;
  std::vector<double> slots_;
  std::size_t next_ = 0;
  std::vector<double> mine_, all_;  // only if interleaved
};

}  // namespace trireme::inline v0::parallel
