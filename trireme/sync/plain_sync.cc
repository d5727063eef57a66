#include "trireme/sync/plain_sync.h"

#include <ATen/Functions.h>

#include <algorithm>
#include <cstring>
#include <numeric>

#include "trireme/base/check.h"
#include "trireme/base/error.h"
#include "trireme/kernel/leaf_sum.h"
#include "trireme/kernel/reduce.h"
#include "trireme/sync/owned_gradients.h"
#include "trireme/tensor/convert.h"

namespace trireme::inline v0::parallel {

Work tree_reduce(comm::Communicator& world, std::span<const comm::Term> terms, std::uint32_t total,
                 Buffer out, std::string_view label) {
  return world.all_reduce(terms, total, std::move(out), {.label = label});
}

PlainSync::PlainSync(comm::Communicator& world, std::vector<std::vector<Accumulated>> uses,
                     std::vector<std::vector<std::uint32_t>> parameter_of,
                     std::vector<optim::OwnedSlice> slices, PlainSyncOptions options)
    : world_(world), options_(std::move(options)), slices_(std::move(slices)) {
  TRIREME_CHECK(uses.size() == parameter_of.size());
  for (std::size_t block = 0; block < uses.size(); ++block) {
    first_of_block_.push_back(static_cast<std::uint32_t>(parameters_.size()));
    TRIREME_CHECK(uses[block].size() == parameter_of[block].size());
    parameters_.insert(parameters_.end(), uses[block].begin(), uses[block].end());
    slice_of_.insert(slice_of_.end(), parameter_of[block].begin(), parameter_of[block].end());
  }
  layout_ = make_bucket_layout(parameters_, options_.bucket_bytes);
  seen_.assign(parameters_.size(), false);
  buckets_.resize(layout_.buckets.size());
  order_.resize(layout_.buckets.size());
  std::iota(order_.begin(), order_.end(), 0u);
  allocate_sums();
  compressor_ = make_compressor(options_.compression, world_, bucket_shapes(), options_.seed);
}

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
    for (const BucketLayout::Entry& entry : bucket.entries) {
      const Accumulated& parameter = parameters_[entry.parameter];
      shape.parts.push_back({parameter.name, static_cast<std::int64_t>(entry.offset),
                             parameter.count, parameter.rows});
    }
  }
  return shapes;
}

// Slot 0, where the sums end, never moves: optimizers keep its address.
void PlainSync::allocate_sums() {
  std::size_t bytes = 0;
  for (const BucketLayout::Bucket& bucket : layout_.buckets) {
    bucket_begin_.push_back(bytes);
    bytes += bucket.bytes();
  }
  slots_.push_back(world_.allocate(std::max<std::size_t>(bytes, 64)));
  std::vector<bool> set(slices_.size(), false);
  for (std::uint32_t use = 0; use < parameters_.size(); ++use) {
    if (set[slice_of_[use]]) continue;  // later uses are added to the first one's sum
    set[slice_of_[use]] = true;
    const BucketLayout::Place place = layout_.place_of[use];
    const BucketLayout::Bucket& bucket = layout_.buckets[place.bucket];
    slices_[slice_of_[use]].gradient =
        slot(place.bucket, 0) + bucket.entries[place.entry].offset * size_of(bucket.sum);
  }
}

std::byte* PlainSync::slot(std::uint32_t bucket, int index) const {
  return slots_[static_cast<std::size_t>(index)].bytes().data() + bucket_begin_[bucket];
}

const LeafPlan& PlainSync::plan_for(std::uint32_t total, int size, int rank) {
  auto found = plans_.find({total, size});
  if (found == plans_.end())
    found = plans_
                .emplace(std::pair(total, size), world_.reproducible()
                                                     ? make_leaf_plan(total, size, rank)
                                                     : make_running_plan(total, size, rank))
                .first;
  return found->second;
}

// The most that any rank needs. All ranks know `total`, so they allocate together.
int PlainSync::most_slots(std::uint32_t total) const {
  if (!world_.reproducible()) return 1;
  if (!alone_) return slots_needed(total, world_.size());
  int slots = 1;
  for (int rank = 0; rank < world_.size(); ++rank)
    slots = std::max(slots,
                     slots_needed(kernel::contiguous_share(total, world_.size(), rank).count, 1));
  return slots;
}

void PlainSync::begin(std::uint32_t total, std::span<const Use>) {
  forward_only_ = total == 0;
  if (forward_only_) return;
  const std::lock_guard lock(mutex_);
  const auto needed = static_cast<std::size_t>(most_slots(total));
  while (slots_.size() < needed) slots_.push_back(world_.allocate(slots_[0].bytes().size()));
  const kernel::LeafRange share = kernel::contiguous_share(total, world_.size(), world_.rank());
  first_leaf_ = alone_ ? share.first : 0;
  plan_ = alone_ ? &plan_for(share.count, 1, 0) : &plan_for(total, world_.size(), world_.rank());
  micro_ = 0;
  next_ = 0;
  arrival_.clear();
  works_.clear();
  refusal_.reset();
  announced_ = false;
  std::fill(buckets_.begin(), buckets_.end(), BucketState{});
}

void PlainSync::begin_micro(std::uint32_t microbatch, double weight) {
  const std::lock_guard lock(mutex_);
  TRIREME_CHECK(!open_);
  TRIREME_CHECK(micro_ < plan_->steps.size());
  TRIREME_CHECK(microbatch == first_leaf_ + plan_->share.first + micro_);
  microbatch_ = microbatch;
  weight_ = weight;
  open_ = true;
  std::fill(seen_.begin(), seen_.end(), false);
  ++micro_;
}

void PlainSync::gradient(ParameterUse use, std::uint32_t microbatch, at::Tensor leaf) noexcept {
  try {
    const std::lock_guard lock(mutex_);
    const std::uint32_t flat = first_of_block_[use.block] + use.parameter;
    const Accumulated& parameter = parameters_[flat];
    if (!open_ || microbatch != microbatch_)
      return refuse(parameter.name + " got a gradient outside its micro-batch", Refusal::kMisused);
    if (seen_[flat])
      return refuse(parameter.name +
                        " got two gradients in one micro-batch; call backward() once "
                        "per step()",
                    Refusal::kMisused);
    add(flat, leaf);
    launch_ready();
  } catch (const std::exception& error) {
    const std::lock_guard lock(mutex_);
    refuse(error.what(), Refusal::kMisused);
  }
}

void PlainSync::add(std::uint32_t use, const at::Tensor& gradient) {
  seen_[use] = true;
  const BucketLayout::Place place = layout_.place_of[use];
  const BucketLayout::Bucket& bucket = layout_.buckets[place.bucket];
  const BucketLayout::Entry& entry = bucket.entries[place.entry];
  const LeafStep step = plan_->steps[micro_ - 1];
  at::Tensor dense = gradient;
  DType type = bucket.sum;
  if (dense.defined()) {
    if (dense.layout() != at::kStrided) dense = dense.to_dense();
    if (bucket.sum == DType::F32 && c10::isReducedFloatingType(dense.scalar_type())) {
      type = tensor::dtype_of(dense);
    } else {
      dense = dense.to(bucket.sum == DType::F64 ? at::kDouble : at::kFloat);
    }
    dense = dense.contiguous();
    TRIREME_CHECK(static_cast<std::size_t>(dense.numel()) == entry.count);
  }
  std::vector<const void*> open;
  const std::size_t offset = entry.offset * size_of(bucket.sum);
  for (int k = 0; k < step.merges; ++k) open.push_back(slot(place.bucket, step.slot + k) + offset);
  const bool finite =
      kernel::add_leaf(dense.defined() ? dense.const_data_ptr() : nullptr, type, weight_, open,
                       slot(place.bucket, step.slot) + offset, entry.count);
  if (!finite)
    refuse("the gradient of " + parameters_[use].name + " is not finite in micro-batch " +
           std::to_string(microbatch_));
  arrived(place.bucket);
}

void PlainSync::arrived(std::uint32_t bucket) {
  if (micro_ < plan_->steps.size()) return;  // only the rank's last micro-batch completes a bucket
  if (++buckets_[bucket].arrived == static_cast<int>(layout_.buckets[bucket].entries.size()))
    arrival_.push_back(bucket);
}

void PlainSync::launch_ready() {
  if (!options_.overlap || !order_known_ || micro_ < plan_->steps.size()) return;
  while (next_ < order_.size() &&
         buckets_[order_[next_]].arrived ==
             static_cast<int>(layout_.buckets[order_[next_]].entries.size())) {
    launch(order_[next_++]);
  }
}

void PlainSync::launch(std::uint32_t bucket) {
  announce();
  if (alone_) return;  // the only term is in slot 0
  const BucketLayout::Bucket& layout = layout_.buckets[bucket];
  const auto buffer = [&](int index) {
    return slots_[static_cast<std::size_t>(index)].buffer(bucket_begin_[bucket], layout.count,
                                                          layout.sum);
  };
  std::vector<comm::Term> terms;
  for (std::size_t i = 0; i < plan_->terms.size(); ++i)
    terms.push_back({buffer(static_cast<int>(i)), plan_->terms[i].first, plan_->terms[i].count});
  if (compressor_) return launch_compressed(bucket, terms, buffer(0));
  works_.push_back(
      options_.reduce(world_, terms, plan_->total, buffer(0), "bucket " + std::to_string(bucket)));
}

// This rank's own terms are added first, in their order, so that one sum per rank is compressed.
void PlainSync::launch_compressed(std::uint32_t bucket, std::span<const comm::Term> terms,
                                  const Buffer& out) {
  if (terms.empty()) std::memset(out.data, 0, out.bytes());
  for (std::size_t i = 1; i < terms.size(); ++i) {
    kernel::combine(kernel::Combine::Sum, out.dtype, out.data, terms[i].value.data, out.data,
                    out.count);
  }
  compressor_->launch(bucket, tensor::view_of(out));
}

void PlainSync::drop() {
  const std::lock_guard lock(mutex_);
  if (compressor_) compressor_->drop();
}

void PlainSync::announce() {
  if (!announced_ && options_.before_launch) works_.push_back(options_.before_launch());
  announced_ = true;
}

void PlainSync::end_micro() {
  const std::lock_guard lock(mutex_);
  TRIREME_CHECK(open_);
  for (std::uint32_t use = static_cast<std::uint32_t>(seen_.size()); use-- > 0;)
    if (!seen_[use]) add(use, {});
  launch_ready();
  open_ = false;
}

Work PlainSync::finish() {
  if (forward_only_) return {};
  const std::lock_guard lock(mutex_);
  TRIREME_CHECK(!open_);
  TRIREME_CHECK(micro_ == plan_->steps.size());
  announce();
  while (next_ < order_.size()) launch(order_[next_++]);
  if (alone_ && plan_->steps.empty())  // a rank without a share
    std::memset(slots_[0].bytes().data(), 0, slots_[0].bytes().size());
  if (!order_known_ && !alone_) learn_order();
  if (compressor_) compressor_->finish();
  return Work::all(works_);
}

// All ranks take rank 0's arrival order. If rank 0 has no share it has no order yet; every rank
// knows that, and the next step tries again.
void PlainSync::learn_order() {
  if (kernel::contiguous_share(plan_->total, world_.size(), 0).count == 0) return;
  auto order = std::make_shared<std::vector<std::int32_t>>(arrival_.begin(), arrival_.end());
  order->resize(layout_.buckets.size());
  order_known_ = true;
  const Work work = world_.broadcast(Buffer::of(std::span(*order)), 0, {.label = "bucket order"});
  works_.push_back(work.then([this, order] { order_.assign(order->begin(), order->end()); }));
}

void PlainSync::refuse(const std::string& reason, int exit_code) {
  if (!refusal_) refusal_ = Refusal{.exit_code = exit_code, .reason = reason};
}

std::optional<Refusal> PlainSync::refusal() const {
  const std::lock_guard lock(mutex_);
  return refusal_;
}

Buffer PlainSync::sum_of(std::size_t slice) const {
  const optim::OwnedSlice& owned = slices_[slice];
  const auto begin = static_cast<const std::byte*>(owned.gradient) - slots_[0].bytes().data();
  return slots_[0].buffer(static_cast<std::size_t>(begin), static_cast<std::size_t>(owned.size()),
                          owned.master_dtype);
}

std::vector<double> PlainSync::chunk_squares() { return squares_of(slices_); }
std::int64_t PlainSync::first_overflow() { return first_not_finite(slices_); }

void PlainSync::settle() {
  std::vector<int> first(slices_.size(), -1);
  for (std::uint32_t use = 0; use < parameters_.size(); ++use) {
    const std::uint32_t slice = slice_of_[use];
    if (first[slice] < 0) {
      first[slice] = static_cast<int>(use);
      continue;
    }
    const BucketLayout::Place place = layout_.place_of[use];
    const BucketLayout::Bucket& bucket = layout_.buckets[place.bucket];
    const BucketLayout::Entry& entry = bucket.entries[place.entry];
    kernel::add_into(const_cast<void*>(slices_[slice].gradient),
                     slot(place.bucket, 0) + entry.offset * size_of(bucket.sum), bucket.sum,
                     entry.count);
  }
}

}  // namespace trireme::inline v0::parallel
