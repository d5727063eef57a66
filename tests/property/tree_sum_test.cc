// Properties of the tree sum T: any ranks that share the leaves get the bits of the definition,
// each leaf counts once, and few sums are open.
#include "trireme/kernel/tree_sum.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
#include <random>
#include <utility>

#include "tests/property/draw.h"
#include "trireme/kernel/assignment.h"
#include "trireme/kernel/leaf_sum.h"
#include "trireme/plan/training_plan.h"
#include "trireme/sync/buckets/leaf_plan.h"

namespace trireme {
namespace {

using kernel::LeafRange;
using parallel::LeafPlan;
using Leaves = std::vector<std::uint32_t>;

float definition(const std::vector<float>& leaves, std::uint32_t a, std::uint32_t b) {
  if (b - a == 1) return leaves[a];
  const std::uint32_t c = a + (b - a) / 2;
  return definition(leaves, a, c) + definition(leaves, c, b);
}

int log2_up(std::uint32_t n) { return n < 2 ? 0 : static_cast<int>(std::bit_width(n - 1)); }
std::vector<std::uint32_t> draw_weights(int ranks) {
  return *rc::gen::container<std::vector<std::uint32_t>>(static_cast<std::size_t>(ranks),
                                                         in_range<std::uint32_t>(1, 50))
              .as("weights");
}
std::uint32_t draw_total() { return *in_range<std::uint32_t>(1, 200).as("total"); }

// Magnitudes differ so much that another order of additions gives other bits.
rc::Gen<std::vector<float>> leaf_values() {
  const auto value = rc::gen::map(
      rc::gen::pair(in_range(-999, 1000), in_range(-15, 16)),
      [](const std::pair<int, int>& one) { return std::ldexp(float(one.first), one.second); });
  return rc::gen::nonEmpty(rc::gen::container<std::vector<float>>(value));
}

// The leaves of a group in the order in which they come: one of each member, then the next ones.
Leaves arrivals(const kernel::Assignment& assignment, std::uint32_t total, int group) {
  Leaves all;
  for (std::size_t round = 0, before = 1; before != all.size() || round == 0; ++round) {
    before = all.size();
    for (int member = 0; member < assignment.members; ++member) {
      const Leaves own = leaves_of(assignment, total, group * assignment.members + member);
      if (round < own.size()) all.push_back(own[round]);
    }
  }
  return all;
}

// Runs a plan with the kernel that training uses. Returns the slots.
std::vector<float> run(const LeafPlan& plan, const Leaves& order,
                       const std::vector<float>& leaves) {
  std::vector<float> slots(static_cast<std::size_t>(plan.slots));
  RC_ASSERT(order.size() == plan.steps.size());
  for (std::size_t i = 0; i < order.size(); ++i) {
    const auto& [slot, merges] = plan.steps[i];
    RC_ASSERT(slot + std::max(merges, 1) <= plan.slots);
    float* const out = slots.data() + slot;
    std::vector<const void*> open;
    for (int k = 0; k < merges; ++k) open.push_back(out + k);
    RC_ASSERT(kernel::add_leaf(&leaves[order[i]], DType::F32, 1, open, out, 1));
  }
  return slots;
}

RC_GTEST_PROP(TreeSumProperty, AnyAssignmentGivesTheBitsOfTheDefinition, ()) {
  const std::vector<float> leaves = *leaf_values().as("leaves");
  const auto total = static_cast<std::uint32_t>(leaves.size());
  kernel::Assignment assignment{*in_range(1, 12).as("groups"), *in_range(1, 6).as("members")};
  if (*rc::gen::arbitrary<bool>().as("has weights"))
    assignment.weights = draw_weights(assignment.groups);
  std::vector<int> groups(static_cast<std::size_t>(assignment.groups));
  for (std::size_t i = 0; i < groups.size(); ++i) groups[i] = static_cast<int>(i);
  std::shuffle(groups.begin(), groups.end(), std::mt19937(*rc::gen::arbitrary<unsigned>()));

  std::vector<int> used(leaves.size(), 0);
  std::map<LeafRange, float> values;
  std::vector<LeafRange> held;
  for (const int group : groups) {
    const LeafPlan plan =
        parallel::make_leaf_plan(shares_of(assignment, total), assignment.groups, group);
    const Leaves order = arrivals(assignment, total, group);
    for (const std::uint32_t leaf : order) ++used[leaf];
    const std::vector<float> slots = run(plan, order, leaves);
    for (std::size_t i = 0; i < plan.terms.size(); ++i) {
      values[plan.terms[i]] = slots[i];
      held.push_back(plan.terms[i]);
    }
    for (const auto& [left, right] : kernel::merges(held, total))
      values[{left.first, left.count + right.count}] = values.at(left) + values.at(right);
  }
  RC_ASSERT(used == std::vector<int>(leaves.size(), 1));
  RC_ASSERT((held == std::vector<LeafRange>{{0, total}}));
  RC_ASSERT(std::bit_cast<std::uint32_t>(values.at({0, total})) ==
            std::bit_cast<std::uint32_t>(definition(leaves, 0, total)));
}

RC_GTEST_PROP(TreeSumProperty, ARankSubmitsFewTermsThatTileItsShare, ()) {
  const std::uint32_t total = draw_total();
  const int size = *in_range(1, 40).as("ranks");
  std::uint32_t next = 0;
  for (int rank = 0; rank < size; ++rank) {
    const LeafRange share = kernel::contiguous_share(total, size, rank);
    RC_ASSERT(share.first == next);
    const auto terms = kernel::maximal_nodes(share, total);
    for (const LeafRange& term : terms) {
      RC_ASSERT(term.first == std::exchange(next, term.end()));
      RC_ASSERT(kernel::is_node(term, total));
    }
    RC_ASSERT(next == share.end());
    const int most = std::has_single_bit(unsigned(size)) ? 1 : 2 * log2_up(total);
    RC_ASSERT(static_cast<int>(terms.size()) <= std::max(1, most));
  }
  RC_ASSERT(next == total);
}

// max(1, ceil(log2 m)) of docs/numerics.md.
RC_GTEST_PROP(TreeSumProperty, OpenSumsOfAPowerOfTwoOfRanksKeepToTheBound, ()) {
  const std::uint32_t total = draw_total();
  const int size = 1 << *in_range(0, 6).as("log2 of the ranks");
  for (int rank = 0; rank < size; ++rank) {
    const LeafPlan plan = parallel::make_leaf_plan(total, size, rank);
    RC_ASSERT(plan.slots <= std::max(1, log2_up(plan.share.count)));
  }
}

RC_GTEST_PROP(TreeSumProperty, ThePlanCountsTheOpenSumsOfAnyRanks, ()) {
  const int ranks = *in_range(1, 20).as("ranks");
  const std::uint32_t total = draw_total();
  RC_PRE(total >= static_cast<std::uint32_t>(ranks));
  const plan::PlannedJob job{.parameters = 1, .batch = total, .micro = 1, .ranks = ranks};
  RC_ASSERT(plan::make_plan(job).open_sums == parallel::slots_needed(total, ranks));
}

RC_GTEST_PROP(TreeSumProperty, ThePlanCountsTheOpenSumsOfUnequalShares, ()) {
  const int ranks = *in_range(1, 20).as("ranks");
  const std::uint32_t total = draw_total();
  RC_PRE(total >= static_cast<std::uint32_t>(ranks));
  const kernel::LeafShares shares(total, draw_weights(ranks));
  const plan::TrainingPlan plan = plan::make_plan(
      {.parameters = 1, .batch = total, .micro = 1, .shares = shares.weights, .ranks = ranks});
  std::uint32_t most = 0;
  for (int rank = 0; rank < ranks; ++rank) most = std::max(most, shares.of(ranks, rank).count);
  RC_ASSERT(plan.micro_per_rank == most);
  RC_ASSERT(plan.open_sums == parallel::slots_needed(shares, ranks));
}

}  // namespace
}  // namespace trireme
