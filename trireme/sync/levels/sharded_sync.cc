#include "trireme/sync/levels/sharded_sync.h"

#include <limits>

#include "trireme/base/check.h"
#include "trireme/sync/levels/owned_gradients.h"

namespace trireme::inline v0::parallel {

SyncPlan ShardedSync::plan_over_all_ranks(const SyncRanks& ranks) {
  if (ranks.shard > 1 && ranks.size % ranks.shard != 0)
    refuse_sync("parallel.shard = " + std::to_string(ranks.shard) + " does not divide " +
                    std::to_string(ranks.size) + " ranks",
                "Leave it out: " + ranks.sync + " shards over all ranks.");
  return {.assignment = kernel::contiguous(ranks.size), .owners = ranks.size};
}

// Three buckets under way: one is sent, one filled, one arrives. Unlimited if the ranks do not go
// through begin()'s order together: their peers may be at another pass of a pipeline, so they must
// not wait.
ShardedSync::ShardedSync(const SyncSetup& setup, std::shared_ptr<WeightGather> weights,
                         bool sums_own_part, LeafSums::Allocate allocate)
    : BucketedSync({.uses = setup.store.uses(),
                    .parameter_of = setup.store.parameter_of(),
                    .slices = setup.store.slices(),
                    .pieces = setup.store.ownership().pieces(),
                    .owner = setup.store.owner(),
                    .sums_own_part = sums_own_part,
                    .bucket_bytes = setup.options.bucket_bytes,
                    .allocate = std::move(allocate),
                    .before_launch = setup.options.before_launch,
                    .assignment = setup.plan.assignment,
                    .rank = setup.data.rank()}),
      groups_(setup.groups),
      exchange_(*groups_.exchange, layout_, setup.store.device()),
      weights_(std::move(weights)),
      pieces_(setup.store.ownership().pieces()),
      part_(setup.part),
      most_under_way_(!setup.in_pipeline || weights_->in_passes()
                          ? 3
                          : std::numeric_limits<std::size_t>::max()) {
  TRIREME_CHECK(static_cast<std::size_t>(owners()) == pieces_.size());
  TRIREME_CHECK(owner_ == groups_.exchange->rank());
}

void ShardedSync::reserve(std::uint32_t total) {
  sums_.reserve(slots_needed(shares_of(assignment_, total), assignment_.groups));
}

void ShardedSync::begin(std::uint32_t total, std::span<const Use> order) {
  reserve(total);
  take_order(order);
  {
    const std::lock_guard lock(mutex_);
    begin_step(total);
    if (total > 0 || weights_->in_passes()) announce();
    plan_ = make_leaf_plan(shares_of(assignment_, total), assignment_.groups,
                           assignment_.group_of(rank_));
    rounds_ = total > 0 ? plan_rounds() : 0;
  }
  weights_->begin(order);
}

void ShardedSync::take_order(std::span<const Use> order) {
  order_.clear();
  place_.clear();
  round_ends_.clear();
  next_use_ = 0;
  std::size_t gathered = 0;
  for (const Use& use : order) {
    if (use.part == part_) {
      order_.push_back(use);
      place_.push_back(gathered);
    }
    gathered += needs_weights(use.phase) ? 1 : 0;
  }
  for (std::size_t i = 0; i < order_.size(); i = end_of_pass(i))
    if (gives_gradients(order_[i].phase)) round_ends_.push_back(end_of_pass(i));
}

// The end of the run of uses with the same micro-batch and phase.
std::size_t ShardedSync::end_of_pass(std::size_t use) const {
  const Use& first = order_[use];
  while (use < order_.size() && order_[use].microbatch == first.microbatch &&
         order_[use].phase == first.phase)
    ++use;
  return use;
}

Pin ShardedSync::acquire(Use use) {
  std::size_t at = next_use_;
  while (at < order_.size() && (order_[at].block != use.block || order_[at].phase != use.phase))
    ++at;
  TRIREME_CHECK(at < order_.size());
  pass(at);
  if (gives_gradients(use.phase)) enter_backward(use.block);
  next_use_ = at + 1;
  return needs_weights(use.phase) ? weights_->acquire(use, place_[at]) : Pin();
}

// Takes part in uses that only the other ranks need.
void ShardedSync::pass(std::size_t use) {
  for (; next_use_ < use; ++next_use_) {
    const Use& one = order_[next_use_];
    if (gives_gradients(one.phase)) enter_backward(one.block);
    if (needs_weights(one.phase)) weights_->pass(place_[next_use_] + 1);
  }
}

// Blocks run backward in reverse order, so later blocks have all the gradients that they will get.
void ShardedSync::enter_backward(std::uint32_t block) {
  {
    const std::lock_guard lock(mutex_);
    close_from(block + 1);
    launch_ready();
  }
  exchange_.drain(most_under_way_);
}

void ShardedSync::end_micro() {
  TRIREME_CHECK(open_);
  complete_round();
}

void ShardedSync::end_pass(std::uint32_t microbatch, Phase phase) {
  if (next_use_ == order_.size() || order_[next_use_].microbatch != microbatch ||
      order_[next_use_].phase != phase)
    return;  // all of its uses have come
  if (gives_gradients(phase)) {
    skip_round();
  } else {
    pass(end_of_pass(next_use_));
  }
}

// This rank has no micro-batch in the round, or it failed.
void ShardedSync::skip_round() {
  {
    const std::lock_guard lock(mutex_);
    begin_round(false);
  }
  complete_round();
}

void ShardedSync::complete_round() {
  if (!order_.empty()) pass(round_ends_[round_]);
  {
    const std::lock_guard lock(mutex_);
    close_from(0);
    launch_ready();
    open_ = false;
    ++round_;
  }
  exchange_.drain(most_under_way_);
}

Work ShardedSync::finish() {
  TRIREME_CHECK(!open_);
  while (round_ < rounds_) skip_round();
  pass(order_.size());
  exchange_.drain(0);
  // Even if this rank's group has no micro-batch: the other groups wait for it.
  if (total_ > 0 && groups_.replicas) reduce_over_replicas();
  return Work::all(works_);
}

// Each rank's sums are one shard, of which the other groups have an equal one.
void ShardedSync::reduce_over_replicas() {
  for (std::uint32_t bucket = 0; bucket < layout_.buckets.size(); ++bucket)
    works_.push_back(groups_.replicas->all_reduce(sums_.terms(plan_, bucket), total_,
                                                  sums_.buffer(0, bucket),
                                                  {.label = "bucket " + std::to_string(bucket)}));
}

std::vector<double> ShardedSync::chunk_squares() {
  return gather_squares(*groups_.exchange, slices_, pieces_);
}

std::int64_t ShardedSync::first_overflow() {
  return first_of_all(*groups_.exchange, first_not_finite(slices_));
}

}  // namespace trireme::inline v0::parallel
