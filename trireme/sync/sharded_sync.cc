#include "trireme/sync/sharded_sync.h"

#include <ATen/Functions.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <numeric>

#include "trireme/base/check.h"
#include "trireme/base/error.h"
#include "trireme/kernel/elementwise.h"
#include "trireme/kernel/leaf_sum.h"
#include "trireme/sync/owned_gradients.h"
#include "trireme/tensor/convert.h"

namespace trireme::inline v0::parallel {

ShardedSync::ShardedSync(ShardGroups groups, ParameterStore& store, ShardedSyncOptions options)
    : groups_(std::move(groups)),
      store_(store),
      options_(std::move(options)),
      slices_(store.slices()),
      buckets_((flatten_uses(), make_shard_buckets(uses_, parameter_of_, store.ownership().pieces(),
                                                   options_.bucket_bytes))),
      exchange_(*groups_.exchange, buckets_) {
  TRIREME_CHECK(owners() == store.ownership().owners());
  TRIREME_CHECK(owner() == store.owner());
  if (store.shards_weights() && options_.gather == nullptr)
    own_gather_ =
        std::make_unique<UnitGather>(*groups_.gather, std::vector{&store}, options_.on_event);
  gather_ = own_gather_ ? own_gather_.get() : options_.gather;
  for (const ShardBuckets::Bucket& bucket : buckets_.buckets) {
    slot_begin_.push_back(slot_bytes_);
    slot_bytes_ += interleaved() ? bucket.of(owner()) * size_of(bucket.sum) : bucket.bytes();
  }
  grow(1);
  place_gradients();
  seen_.assign(uses_.size(), false);
  arrived_.assign(buckets_.buckets.size(), 0);
  staged_.resize(buckets_.buckets.size());
}

void ShardedSync::flatten_uses() {
  for (std::size_t block = 0; block < store_.uses().size(); ++block) {
    first_of_block_.push_back(static_cast<std::uint32_t>(uses_.size()));
    const auto& uses = store_.uses()[block];
    const auto& parameters = store_.parameter_of()[block];
    uses_.insert(uses_.end(), uses.begin(), uses.end());
    parameter_of_.insert(parameter_of_.end(), parameters.begin(), parameters.end());
  }
  first_of_block_.push_back(static_cast<std::uint32_t>(uses_.size()));
}

// Slot 0, where the sums end, never moves: optimizers keep its address.
void ShardedSync::place_gradients() {
  std::vector<bool> set(store_.parameters().size(), false);
  std::vector<std::byte*> gradient_of(store_.parameters().size(), nullptr);
  for (std::uint32_t use = 0; use < uses_.size(); ++use) {
    if (set[parameter_of_[use]]) continue;  // later uses are added to the first one's sum
    set[parameter_of_[use]] = true;
    for (const ShardBuckets::PartPlace& place : buckets_.parts_of_use[use]) {
      const ShardBuckets::Bucket& bucket = buckets_.buckets[place.bucket];
      const ShardBuckets::Part& part = bucket.parts[place.part];
      if (part.owner != owner()) continue;
      const std::size_t first = interleaved() ? bucket.begin[static_cast<std::size_t>(owner())] : 0;
      gradient_of[parameter_of_[use]] =
          slot(0, place.bucket) + (part.offset - first) * size_of(bucket.sum);
    }
  }
  for (optim::OwnedSlice& slice : slices_) slice.gradient = gradient_of[slice.parameter];
}

std::byte* ShardedSync::slot(std::size_t index, std::uint32_t bucket) const {
  return slots_[index].bytes().data() + slot_begin_[bucket];
}

// All ranks know the batch, so they allocate together. An interleaved slot holds only this rank's
// shards, whose sizes agree among the owners of the same shard: their communicator allocates it.
void ShardedSync::grow(std::size_t slots) {
  const std::size_t bytes = std::max<std::size_t>(slot_bytes_, 64);
  while (slots_.size() < slots) {
    if (interleaved() && !groups_.replicas) {
      const at::Tensor memory =
          at::zeros({static_cast<std::int64_t>(bytes)}, at::TensorOptions().dtype(at::kByte));
      const Buffer buffer = tensor::to_buffer(memory);
      net::Region region;
      region.bytes = {static_cast<std::byte*>(buffer.data), bytes};
      region.owner = buffer.owner;
      slots_.emplace_back(std::move(region));
    } else {
      slots_.push_back((interleaved() ? *groups_.replicas : *groups_.exchange).allocate(bytes));
    }
  }
}

std::size_t ShardedSync::gradient_bytes() const { return slots_.size() * slot_bytes_; }

void ShardedSync::make_plan(std::uint32_t total) {
  if (total == total_) return;
  total_ = total;
  const kernel::Assignment& assignment = options_.assignment;
  plan_ = make_leaf_plan(total, assignment.groups, assignment.group_of(options_.rank));
  grow(static_cast<std::size_t>(slots_needed(total, assignment.groups)));
  const std::uint32_t count = plan_.share.count;
  if (interleaved()) {
    const auto members = static_cast<std::uint32_t>(assignment.members);
    rounds_ = (count + members - 1) / members;
    return;
  }
  rounds_ = std::max(count, 1u);  // without a share: one round without a leaf
  terms_of_.clear();
  std::vector<kernel::LeafRange> nodes;
  for (int r = 0; r < assignment.groups; ++r) {
    terms_of_.push_back(
        kernel::maximal_nodes(kernel::contiguous_share(total, assignment.groups, r), total));
    nodes.insert(nodes.end(), terms_of_.back().begin(), terms_of_.back().end());
  }
  fold_steps_ = kernel::fold_steps(nodes, total);
}

void ShardedSync::begin(std::uint32_t total, std::span<const Use> order) {
  const std::lock_guard lock(mutex_);
  take_order(order);
  works_.clear();
  refusal_.reset();
  open_ = false;
  round_ = 0;
  if (options_.before_launch && (total > 0 || gather_)) works_.push_back(options_.before_launch());
  if (total > 0) {
    make_plan(total);
  } else {
    rounds_ = 0;
    total_ = 0;  // plan the next step anew, whatever its length
  }
  if (own_gather_) own_gather_->begin(order_);
}

void ShardedSync::take_order(std::span<const Use> order) {
  order_.clear();
  place_.clear();
  round_ends_.clear();
  next_use_ = 0;
  std::size_t gathered = 0;
  for (const Use& use : order) {
    if (use.part == options_.part) {
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

void ShardedSync::begin_round(bool present) {
  present_ = present;
  std::fill(seen_.begin(), seen_.end(), false);
  std::fill(arrived_.begin(), arrived_.end(), 0);
  closed_from_ = static_cast<std::uint32_t>(first_of_block_.size() - 1);
  next_bucket_ = 0;
}

void ShardedSync::begin_micro(std::uint32_t microbatch, double weight) {
  const std::lock_guard lock(mutex_);
  TRIREME_CHECK(!open_);
  TRIREME_CHECK(round_ < rounds_);
  const auto leaves = leaves_of(options_.assignment, total_, options_.rank);
  TRIREME_CHECK(round_ < leaves.size());
  TRIREME_CHECK(microbatch == leaves[round_]);
  microbatch_ = microbatch;
  weight_ = weight;
  open_ = true;
  begin_round(true);
}

Pin ShardedSync::acquire(Use use) {
  const std::lock_guard lock(mutex_);
  std::size_t at = next_use_;
  while (at < order_.size() && (order_[at].block != use.block || order_[at].phase != use.phase))
    ++at;
  TRIREME_CHECK(at < order_.size());
  pass(at);
  if (gives_gradients(use.phase)) enter_backward(use.block);
  next_use_ = at + 1;
  if (!gather_ || !needs_weights(use.phase)) return {};
  if (options_.on_event) options_.on_event({.kind = ShardEvent::Kind::Use, .use = use});
  const std::size_t place = place_[at];
  gather_->acquire(place);
  return Pin([this, place] { gather_->release(place); });
}

// Takes part in uses that only the other ranks need.
void ShardedSync::pass(std::size_t use) {
  for (; next_use_ < use; ++next_use_) {
    const Use& one = order_[next_use_];
    if (gives_gradients(one.phase)) enter_backward(one.block);
    if (gather_ && needs_weights(one.phase)) gather_->pass(place_[next_use_] + 1);
  }
}

// Blocks run backward in reverse order, so later blocks have all the gradients that they will get.
void ShardedSync::enter_backward(std::uint32_t block) {
  while (closed_from_ > block + 1) close(--closed_from_);
  launch_ready();
  exchange_.drain(options_.most_under_way);
}

void ShardedSync::close(std::uint32_t block) {
  for (std::uint32_t use = first_of_block_[block + 1]; use-- > first_of_block_[block];) {
    if (seen_[use]) continue;
    if (present_) {
      add(use, {});
    } else {
      seen_[use] = true;
      arrived(use);
    }
  }
}

void ShardedSync::gradient(ParameterUse use, std::uint32_t microbatch, at::Tensor leaf) noexcept {
  try {
    const std::lock_guard lock(mutex_);
    const std::uint32_t flat = first_of_block_[use.block] + use.parameter;
    const std::string& name = uses_[flat].name;
    if (!open_ || microbatch != microbatch_)
      return refuse(name + " got a gradient outside its micro-batch", Refusal::kMisused);
    if (seen_[flat])
      return refuse(name + " got two gradients in one micro-batch; call backward() once per step()",
                    Refusal::kMisused);
    add(flat, leaf);
    launch_ready();
  } catch (const std::exception& error) {
    const std::lock_guard lock(mutex_);
    refuse(error.what(), Refusal::kMisused);
  }
}

void ShardedSync::add(std::uint32_t use, const at::Tensor& gradient) {
  const std::uint32_t number = buckets_.bucket_of_use[use];
  const DType sum = buckets_.buckets[number].sum;
  at::Tensor dense = gradient;
  DType type = sum;
  if (dense.defined()) {
    if (dense.layout() != at::kStrided) dense = dense.to_dense();
    if (sum == DType::F32 && c10::isReducedFloatingType(dense.scalar_type())) {
      type = tensor::dtype_of(dense);
    } else {
      dense = dense.to(sum == DType::F64 ? at::kDouble : at::kFloat);
    }
    dense = dense.contiguous();
    TRIREME_CHECK(dense.numel() == uses_[use].count);
  }
  const auto* data =
      dense.defined() ? static_cast<const std::byte*>(dense.const_data_ptr()) : nullptr;
  bool finite = true;
  for (const ShardBuckets::PartPlace& place : buckets_.parts_of_use[use]) {
    const ShardBuckets::Part& part = buckets_.buckets[place.bucket].parts[place.part];
    const std::size_t skip = static_cast<std::size_t>(part.begin) * size_of(type);
    finite = add_part(place, data != nullptr ? data + skip : nullptr, type) && finite;
  }
  if (!finite)
    refuse("the gradient of " + uses_[use].name + " is not finite in micro-batch " +
           std::to_string(microbatch_));
  seen_[use] = true;
  arrived(use);
}

bool ShardedSync::add_part(const ShardBuckets::PartPlace& place, const void* gradient, DType type) {
  const ShardBuckets::Bucket& bucket = buckets_.buckets[place.bucket];
  const ShardBuckets::Part& part = bucket.parts[place.part];
  const std::size_t offset = part.offset * size_of(bucket.sum);
  if (interleaved()) {
    BufferPool::Lease& staged = staged_[place.bucket];
    if (!staged.data) staged = exchange_.take(bucket.bytes());
    return kernel::add_leaf(gradient, type, weight_, {}, staged.data.get() + offset, part.size());
  }
  const LeafStep step = plan_.steps[round_];
  std::vector<const void*> open;
  for (int k = 0; k < step.merges; ++k)
    open.push_back(slot(static_cast<std::size_t>(step.slot + k), place.bucket) + offset);
  return kernel::add_leaf(gradient, type, weight_, open,
                          slot(static_cast<std::size_t>(step.slot), place.bucket) + offset,
                          part.size());
}

void ShardedSync::arrived(std::uint32_t use) { ++arrived_[buckets_.bucket_of_use[use]]; }

// Contiguous sums are complete in the rank's last micro-batch.
bool ShardedSync::launches() const { return interleaved() || round_ + 1 == rounds_; }

void ShardedSync::launch_ready() {
  if (!launches()) return;
  while (next_bucket_ < buckets_.buckets.size() &&
         arrived_[next_bucket_] == buckets_.buckets[next_bucket_].uses.size())
    launch(next_bucket_++);
}

void ShardedSync::launch(std::uint32_t bucket) {
  if (interleaved()) {
    launch_leaves(bucket);
  } else {
    launch_terms(bucket);
  }
}

void ShardedSync::launch_leaves(std::uint32_t bucket) {
  std::vector<std::uint32_t> from;
  for (int r = 0; r < owners(); ++r)
    from.push_back(round_ * static_cast<std::uint32_t>(owners()) + static_cast<std::uint32_t>(r) <
                           plan_.share.count
                       ? 1
                       : 0);
  BufferPool::Lease lease = std::exchange(staged_[bucket], {});
  const void* mine = lease.data.get();
  const ShardBuckets::Bucket& layout = buckets_.buckets[bucket];
  const std::size_t pieces = std::accumulate(from.begin(), from.end(), std::size_t{0});
  const std::size_t bytes =
      (present_ ? layout.bytes() : 0) + pieces * layout.of(owner()) * size_of(layout.sum);
  const auto tell = [this, bucket, bytes](ShardEvent::Kind kind) {
    if (options_.on_event) options_.on_event({.kind = kind, .number = bucket, .bytes = bytes});
  };
  tell(ShardEvent::Kind::Send);
  exchange_.launch(bucket, mine, present_ ? 1 : 0, from, std::move(lease),
                   [this, bucket, tell, round = round_](std::span<const void* const> received) {
                     fold_leaves(bucket, round, received);
                     tell(ShardEvent::Kind::Fold);
                   });
}

void ShardedSync::fold_leaves(std::uint32_t bucket, std::uint32_t round,
                              std::span<const void* const> pieces) {
  const ShardBuckets::Bucket& layout = buckets_.buckets[bucket];
  std::uint32_t leaf = round * static_cast<std::uint32_t>(owners());
  for (const void* piece : pieces) {
    const LeafStep step = plan_.steps[leaf++];
    std::vector<const void*> open;
    for (int k = 0; k < step.merges; ++k)
      open.push_back(slot(static_cast<std::size_t>(step.slot + k), bucket));
    kernel::add_leaf(piece, layout.sum, 1.0, open,
                     slot(static_cast<std::size_t>(step.slot), bucket), layout.of(owner()));
  }
}

// A rank with several terms (if the number of ranks is no power of two) sends them together.
void ShardedSync::launch_terms(std::uint32_t bucket) {
  const ShardBuckets::Bucket& layout = buckets_.buckets[bucket];
  const std::size_t width = size_of(layout.sum);
  std::vector<std::uint32_t> from;
  for (const auto& terms : terms_of_) from.push_back(static_cast<std::uint32_t>(terms.size()));
  const std::uint32_t num_mine = from[static_cast<std::size_t>(options_.rank)];
  BufferPool::Lease lease;
  const void* mine = slot(0, bucket);
  if (num_mine > 1) {
    lease = exchange_.take(num_mine * layout.bytes());
    std::byte* to = lease.data.get();
    for (int r = 0; r < owners(); ++r) {
      for (std::uint32_t term = 0; term < num_mine; ++term) {
        const std::size_t bytes = layout.of(r) * width;
        std::memcpy(to, slot(term, bucket) + layout.begin[static_cast<std::size_t>(r)] * width,
                    bytes);
        to += bytes;
      }
    }
    mine = lease.data.get();
  }
  exchange_.launch(bucket, mine, num_mine, from, std::move(lease),
                   [this, bucket](std::span<const void* const> pieces) {
                     const ShardBuckets::Bucket& own = buckets_.buckets[bucket];
                     void* out = slot(0, bucket) +
                                 own.begin[static_cast<std::size_t>(owner())] * size_of(own.sum);
                     kernel::fold(kernel::Combine::Sum, own.sum, fold_steps_, pieces, {&out, 1},
                                  own.of(owner()), 0);
                   });
}

void ShardedSync::end_micro() {
  const std::lock_guard lock(mutex_);
  TRIREME_CHECK(open_);
  complete_round();
  open_ = false;
}

void ShardedSync::end_pass(std::uint32_t microbatch, Phase phase) {
  const std::lock_guard lock(mutex_);
  if (next_use_ == order_.size() || order_[next_use_].microbatch != microbatch ||
      order_[next_use_].phase != phase)
    return;  // all of its uses have come
  if (!gives_gradients(phase)) return pass(end_of_pass(next_use_));
  begin_round(false);
  complete_round();
}

void ShardedSync::complete_round() {
  if (!order_.empty()) pass(round_ends_[round_]);
  while (closed_from_ > 0) close(--closed_from_);
  launch_ready();
  exchange_.drain(options_.most_under_way);
  ++round_;
}

Work ShardedSync::finish() {
  const std::lock_guard lock(mutex_);
  TRIREME_CHECK(!open_);
  while (round_ < rounds_) {
    begin_round(false);
    complete_round();
  }
  pass(order_.size());
  exchange_.drain(0);
  // Even if this group has no micro-batch: the other groups wait for it.
  if (total_ > 0 && groups_.replicas) reduce_over_replicas();
  return Work::all(works_);
}

void ShardedSync::reduce_over_replicas() {
  for (std::uint32_t bucket = 0; bucket < buckets_.buckets.size(); ++bucket) {
    const ShardBuckets::Bucket& layout = buckets_.buckets[bucket];
    const auto buffer = [&](std::size_t index) {
      return slots_[index].buffer(slot_begin_[bucket], layout.of(owner()), layout.sum);
    };
    std::vector<comm::Term> terms;
    for (std::size_t i = 0; i < plan_.terms.size(); ++i)
      terms.push_back({buffer(i), plan_.terms[i].first, plan_.terms[i].count});
    works_.push_back(groups_.replicas->all_reduce(terms, total_, buffer(0),
                                                  {.label = "bucket " + std::to_string(bucket)}));
  }
}

void ShardedSync::refuse(const std::string& reason, int exit_code) {
  if (!refusal_) refusal_ = Refusal{.exit_code = exit_code, .reason = reason};
}

std::optional<Refusal> ShardedSync::refusal() const {
  const std::lock_guard lock(mutex_);
  return refusal_;
}

void ShardedSync::settle() {
  std::vector<const std::byte*> first(store_.parameters().size(), nullptr);
  for (const optim::OwnedSlice& slice : slices_)
    first[slice.parameter] = static_cast<const std::byte*>(slice.gradient);
  std::vector<bool> seen(store_.parameters().size(), false);
  for (std::uint32_t use = 0; use < uses_.size(); ++use) {
    const std::uint32_t parameter = parameter_of_[use];
    if (!seen[parameter]) {
      seen[parameter] = true;
      continue;
    }
    for (const ShardBuckets::PartPlace& place : buckets_.parts_of_use[use]) {
      const ShardBuckets::Bucket& bucket = buckets_.buckets[place.bucket];
      const ShardBuckets::Part& part = bucket.parts[place.part];
      if (part.owner != owner()) continue;
      const std::size_t skip = interleaved() ? bucket.begin[static_cast<std::size_t>(owner())] : 0;
      kernel::add_into(const_cast<std::byte*>(first[parameter]),
                       slot(0, place.bucket) + (part.offset - skip) * size_of(bucket.sum),
                       bucket.sum, part.size());
    }
  }
}

std::vector<double> ShardedSync::chunk_squares() {
  return gather_squares(*groups_.exchange, slices_, store_.ownership().pieces());
}

std::int64_t ShardedSync::first_overflow() {
  constexpr std::int64_t kNone = std::numeric_limits<std::int64_t>::max();
  const std::int64_t mine = first_not_finite(slices_);
  std::array<std::int64_t, 1> first{mine < 0 ? kNone : mine};
  groups_.exchange
      ->all_reduce(Buffer::of(std::span<std::int64_t>(first)), ReduceOp::Min, {.label = "overflow"})
      .wait();
  return first[0] == kNone ? -1 : first[0];
}

Work ShardedSync::publish() {
  if (store_.shards_weights()) return {};  // gathered when they are used
  std::vector<Work> works;
  for (std::uint32_t unit = 0; unit < store_.ownership().units().size(); ++unit) {
    const Unit& layout = store_.ownership().units()[unit];
    if (layout.bytes == 0) continue;
    const std::span<std::byte> own = store_.own(unit), whole = store_.whole(unit);
    works.push_back(groups_.exchange->all_gather_v(
        {own.data(), own.size(), DType::U8}, {whole.data(), whole.size(), DType::U8},
        layout.counts(), {.label = "weights of block " + std::to_string(unit)}));
  }
  return Work::all(works);
}

}  // namespace trireme::inline v0::parallel
