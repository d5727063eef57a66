#include "trireme/sync/levels/plain_sync.h"

#include <algorithm>
#include <cstring>

#include "trireme/base/check.h"
#include "trireme/base/error.h"
#include "trireme/sync/levels/level.h"
#include "trireme/sync/levels/owned_gradients.h"
#include "trireme/sync/sync_setup.h"
#include "trireme/tensor/convert.h"

namespace trireme::inline v0::parallel {
namespace {

Device device_of(std::span<const optim::OwnedSlice> slices) {
  return slices.empty() ? Device() : slices.front().device;
}

}  // namespace

Work tree_reduce(comm::Communicator& world, std::span<const comm::Term> terms,
                 const kernel::LeafShares& leaves, Buffer out, std::string_view label) {
  return world.all_reduce(terms, leaves, std::move(out), {.label = label});
}

PlainSync::PlainSync(const SyncSetup& setup)
    : PlainSync(setup.data, setup.store.uses(), setup.store.parameter_of(), setup.store.slices(),
                setup.options) {
  set_shares(setup.plan.assignment.weights);
}

PlainSync::PlainSync(comm::Communicator& world, std::vector<std::vector<Accumulated>> uses,
                     std::vector<std::vector<std::uint32_t>> parameter_of,
                     std::vector<optim::OwnedSlice> slices, PlainSyncOptions options)
    : BucketedSync({.uses = std::move(uses),
                    .parameter_of = std::move(parameter_of),
                    .slices = slices,
                    .bucket_bytes = options.bucket_bytes,
                    .allocate = [&world, device = device_of(slices)](
                                    std::size_t bytes) { return world.allocate(bytes, device); },
                    .before_launch = options.before_launch,
                    .assignment = kernel::contiguous(world.size()),
                    .rank = world.rank()}),
      world_(world),
      options_(std::move(options)),
      compressor_(make_compressor(options_.compression, world_, bucket_shapes(), options_.seed)) {}

std::vector<BucketShape> PlainSync::bucket_shapes() const {
  std::vector<BucketShape> shapes;
  for (const BucketLayout::Bucket& bucket : layout_.buckets) {
    if (bucket.sum != DType::F32 && options_.compression != "none") {
      throw ConfigError("gradients in fp64 are not compressed",
                        {.rank = world_.rank(),
                         .operation = "config",
                         .label = "comm.compression",
                         .advice = "Use comm.compression = \"none\", or another precision."});
    }
    BucketShape& shape = shapes.emplace_back();
    shape.count = static_cast<std::int64_t>(bucket.count);
    shape.device = device_of(slices_);
    for (const BucketLayout::OwnedRange& part : bucket.parts) {
      const Accumulated& use = uses_[part.use];
      shape.parts.push_back(
          {use.name, static_cast<std::int64_t>(part.offset), use.count, use.rows});
    }
  }
  return shapes;
}

// The most that any rank needs. All ranks know `total`, so they allocate together.
int PlainSync::most_slots(std::uint32_t total) const {
  if (!world_.reproducible()) return 1;
  if (!alone_) return slots_needed(shares_of(assignment_, total), world_.size());
  int slots = 1;
  for (int rank = 0; rank < world_.size(); ++rank)
    slots = std::max(slots, slots_needed(group_share(assignment_, total, rank).count, 1));
  return slots;
}

void PlainSync::reserve(std::uint32_t total) { sums_.reserve(most_slots(total)); }

void PlainSync::begin(std::uint32_t total, std::span<const Use>) {
  reserve(total);
  const std::lock_guard lock(mutex_);
  begin_step(total);
  rounds_ = static_cast<std::uint32_t>(leaves_.size());
  const auto make_plan = world_.reproducible() ? make_leaf_plan : make_running_plan;
  plan_ = alone_ ? make_plan(rounds_, 1, 0)
                 : make_plan(shares_of(assignment_, total), world_.size(), world_.rank());
}

void PlainSync::launch(std::uint32_t bucket) {
  announce();
  if (alone_) return;  // the only term is in slot 0
  const std::vector<comm::Term> terms = sums_.terms(plan_, bucket);
  const Buffer out = sums_.buffer(0, bucket);
  if (compressor_) return launch_compressed(bucket, terms, out);
  works_.push_back(
      options_.reduce(world_, terms, plan_.leaves, out, "bucket " + std::to_string(bucket)));
}

// This rank's own terms are added first, in their order, so that one sum per rank is compressed.
void PlainSync::launch_compressed(std::uint32_t bucket, std::span<const comm::Term> terms,
                                  const Buffer& out) {
  if (terms.empty()) sums_.math().clear(out.data, out.bytes());
  for (std::size_t i = 1; i < terms.size(); ++i)
    sums_.math().add_into(out.data, terms[i].value.data, out.dtype, out.count);
  compressor_->launch(bucket, tensor::view_of(out));
}

void PlainSync::drop() {
  if (compressor_) compressor_->drop();
}

Work PlainSync::publish() {
  if (compressor_) compressor_->accept();
  return {};
}

void PlainSync::end_micro() {
  const std::lock_guard lock(mutex_);
  TRIREME_CHECK(open_);
  close_from(0);
  launch_ready();
  open_ = false;
  ++round_;
}

Work PlainSync::finish() {
  if (total_ == 0) return {};  // forward passes only
  {
    const std::lock_guard lock(mutex_);
    TRIREME_CHECK(!open_);
    TRIREME_CHECK(round_ == rounds_);
    announce();
    launch_rest();
  }
  if (alone_ && rounds_ == 0) {  // a rank without a share
    for (std::uint32_t bucket = 0; bucket < layout_.buckets.size(); ++bucket)
      sums_.math().clear(sums_.at(0, bucket, 0), layout_.buckets[bucket].bytes());
  }
  if (!order_known_ && !alone_) learn_order();
  if (compressor_) compressor_->finish();
  return Work::all(works_);
}

// All ranks take rank 0's arrival order. If rank 0 has no share it has no order yet; every rank
// knows that, and the next step tries again.
void PlainSync::learn_order() {
  if (group_share(assignment_, total_, 0).count == 0) return;
  auto order = std::make_shared<std::vector<std::int32_t>>(arrival_.begin(), arrival_.end());
  order->resize(layout_.buckets.size());
  order_known_ = true;
  const Work work = world_.broadcast(Buffer::of(std::span(*order)), 0, {.label = "bucket order"});
  works_.push_back(
      work.then([this, order] { launch_order_.assign(order->begin(), order->end()); }));
}

Buffer PlainSync::sum_of(std::size_t slice) const {
  const optim::OwnedSlice& owned = slices_[slice];
  const Buffer first = sums_.buffer(0, 0);  // of the same arena
  return {const_cast<void*>(owned.gradient),
          static_cast<std::size_t>(owned.size()),
          owned.master_dtype,
          first.device,
          {},
          first.owner};
}

std::vector<double> PlainSync::chunk_squares() { return squares_of(slices_); }
std::int64_t PlainSync::first_overflow() { return first_not_finite(slices_); }

Level plain_level() {
  return {.name = "plain",
          .keeps = "all of it",
          .plan =
              [](const SyncRanks& ranks) {
                return SyncPlan{.assignment = kernel::contiguous(ranks.size)};
              },
          .make = &make_level<PlainSync>};
}

std::vector<Compressor*> compressors_of(std::span<ParameterSync* const> syncs) {
  std::vector<Compressor*> all;
  for (ParameterSync* const sync : syncs)
    if (const auto* plain = dynamic_cast<PlainSync*>(sync); plain && plain->compressor())
      all.push_back(plain->compressor());
  return all;
}

}  // namespace trireme::inline v0::parallel
