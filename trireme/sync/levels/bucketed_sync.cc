#include "trireme/sync/levels/bucketed_sync.h"

#include <ATen/Functions.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include "trireme/base/check.h"
#include "trireme/tensor/convert.h"
#include "trireme/tensor/devices/device.h"

namespace trireme::inline v0::parallel {
namespace {

template <class T>
std::vector<T> flat(const std::vector<std::vector<T>>& by_block) {
  std::vector<T> all;
  for (const std::vector<T>& one : by_block) all.insert(all.end(), one.begin(), one.end());
  return all;
}

std::vector<LeafSums::Range> ranges_of(const BucketLayout& layout, bool own_part, int owner) {
  std::vector<LeafSums::Range> ranges;
  for (const BucketLayout::Bucket& bucket : layout.buckets)
    ranges.push_back(own_part
                         ? LeafSums::Range{bucket.begin_of(owner), bucket.of(owner), bucket.sum}
                         : LeafSums::Range{0, bucket.count, bucket.sum});
  return ranges;
}

std::vector<std::vector<Piece>> of_one_owner(std::span<const optim::OwnedSlice> slices) {
  std::vector<std::vector<Piece>> pieces(1);
  for (const optim::OwnedSlice& slice : slices)
    pieces[0].push_back({slice.parameter, slice.begin, slice.end});
  return pieces;
}

// A gradient as kernel::add_leaf reads it: dense, in the sum's type or a shorter one.
at::Tensor dense(const at::Tensor& gradient, DType sum) {
  at::Tensor result = gradient.layout() == at::kStrided ? gradient : gradient.to_dense();
  if (sum != DType::F32 || !c10::isReducedFloatingType(result.scalar_type()))
    result = result.to(tensor::scalar_type_of(sum));
  return result.contiguous();
}

}  // namespace

BucketedSync::BucketedSync(Setup setup)
    : assignment_(setup.assignment),
      rank_(setup.rank),
      owner_(setup.owner),
      uses_(flat(setup.uses)),
      parameter_of_(flat(setup.parameter_of)),
      first_of_block_{0},
      layout_(make_bucket_layout(uses_, parameter_of_,
                                 setup.pieces.empty() ? of_one_owner(setup.slices) : setup.pieces,
                                 setup.bucket_bytes)),
      sums_(ranges_of(layout_, setup.sums_own_part, owner_), std::move(setup.allocate)),
      slices_(std::move(setup.slices)),
      before_launch_(std::move(setup.before_launch)) {
  TRIREME_CHECK(uses_.size() == parameter_of_.size());
  for (const auto& block : setup.uses)
    first_of_block_.push_back(first_of_block_.back() + static_cast<std::uint32_t>(block.size()));
  std::map<std::uint32_t, const std::byte*> sum_of;  // later uses are added to the first one's
  for (std::uint32_t use = 0; use < uses_.size(); ++use)
    for (const BucketLayout::RangeIndex& place : layout_.places[use])
      if (layout_.part(place).owner == owner_) sum_of.emplace(parameter_of_[use], own_sum(place));
  for (optim::OwnedSlice& slice : slices_) slice.gradient = sum_of.at(slice.parameter);
  seen_.assign(uses_.size(), false);
  arrived_.assign(layout_.buckets.size(), 0);
  launch_order_.resize(layout_.buckets.size());
  std::iota(launch_order_.begin(), launch_order_.end(), 0u);
}

void BucketedSync::begin_step(std::uint32_t total) {
  total_ = total;
  leaves_ = leaves_of(assignment_, total, rank_);
  round_ = rounds_ = 0;
  open_ = announced_ = false;
  works_.clear();
  refusal_.reset();
  unread_.clear();
  arrival_.clear();
  next_ = 0;
}

void BucketedSync::begin_round(bool present) {
  present_ = present;
  std::fill(seen_.begin(), seen_.end(), false);
  std::fill(arrived_.begin(), arrived_.end(), 0);
  arrival_.clear();
  closed_ = first_of_block_.back();
  next_ = 0;
}

void BucketedSync::begin_micro(std::uint32_t microbatch, double weight) {
  const std::lock_guard lock(mutex_);
  TRIREME_CHECK(!open_);
  TRIREME_CHECK(round_ < leaves_.size());
  TRIREME_CHECK(microbatch == leaves_[round_]);
  weight_ = weight;
  open_ = true;
  begin_round(true);
}

void BucketedSync::gradient(ParameterUse use, std::uint32_t microbatch, at::Tensor leaf) noexcept {
  try {
    const std::lock_guard lock(mutex_);
    const std::uint32_t flat = first_of_block_[use.block] + use.parameter;
    const std::string& name = uses_[flat].name;
    if (!open_ || microbatch != leaves_[round_])
      return refuse(name + " got a gradient outside its micro-batch", Refusal::kMisused);
    if (seen_[flat])
      return refuse(name +
                        " got two gradients in one micro-batch; call backward() once per step() "
                        "(DataParallel's if several train), use it in one recomputed part only",
                    Refusal::kMisused);
    add(flat, leaf);
    launch_ready();
  } catch (const std::exception& error) {
    const std::lock_guard lock(mutex_);
    refuse(error.what(), Refusal::kMisused);
  }
}

void BucketedSync::add(std::uint32_t use, const at::Tensor& gradient) {
  DType type = layout_.buckets[layout_.bucket_of_use[use]].sum;
  at::Tensor values;
  const std::byte* data = nullptr;
  if (gradient.defined()) {
    values = dense(gradient, type);
    TRIREME_CHECK(values.numel() == uses_[use].count);
    type = tensor::dtype_of(values);
    data = static_cast<const std::byte*>(values.const_data_ptr());
  }
  bool finite = true;
  for (const BucketLayout::RangeIndex& place : layout_.places[use]) {
    const std::size_t skip = static_cast<std::size_t>(layout_.part(place).begin) * size_of(type);
    tensor::Finite part = add_leaf(place, data != nullptr ? data + skip : nullptr, type);
    finite &= part.now;
    if (part.later.defined()) unread_.push_back({use, leaves_[round_], std::move(part.later)});
  }
  if (!finite) refuse_not_finite(use, leaves_[round_]);
  arrived(use);
}

tensor::Finite BucketedSync::add_leaf(const BucketLayout::RangeIndex& place, const void* gradient,
                                      DType type) {
  const BucketLayout::OwnedRange& part = layout_.part(place);
  return sums_.add(plan_.steps[round_], place.bucket, part.offset, gradient, type, weight_,
                   part.size());
}

void BucketedSync::arrived(std::uint32_t use) {
  seen_[use] = true;
  const std::uint32_t bucket = layout_.bucket_of_use[use];
  ++arrived_[bucket];
  if (filled(bucket)) arrival_.push_back(bucket);
}

void BucketedSync::close_from(std::uint32_t block) {
  while (closed_ > first_of_block_[block]) {
    const std::uint32_t use = --closed_;
    if (seen_[use]) continue;
    if (present_) {
      add(use, {});
    } else {
      arrived(use);
    }
  }
}

void BucketedSync::launch_ready() {
  while (launches() && next_ < launch_order_.size() && filled(launch_order_[next_]))
    launch(launch_order_[next_++]);
}

void BucketedSync::refuse_not_finite(std::uint32_t use, std::uint32_t microbatch) const {
  refuse("the gradient of " + uses_[use].name + " is not finite in micro-batch " +
         std::to_string(microbatch));
}

// Waits for the device once for all leaves.
void BucketedSync::read_checks() const {
  if (unread_.empty()) return;
  std::vector<at::Tensor> broken;
  for (const Unread& one : unread_) broken.push_back(one.broken);
  const at::Tensor all = tensor::on_host(at::stack(broken));
  const bool* first = all.const_data_ptr<bool>();
  const auto found = std::find(first, first + unread_.size(), true) - first;
  if (static_cast<std::size_t>(found) < unread_.size())
    refuse_not_finite(unread_[static_cast<std::size_t>(found)].use,
                      unread_[static_cast<std::size_t>(found)].microbatch);
  unread_.clear();
}

void BucketedSync::refuse(const std::string& reason, int exit_code) const {
  if (!refusal_) refusal_ = Refusal{.exit_code = exit_code, .reason = reason};
}

std::optional<Refusal> BucketedSync::refusal() const {
  const std::lock_guard lock(mutex_);
  read_checks();
  return refusal_;
}

void BucketedSync::settle() {
  std::map<std::uint32_t, std::byte*> first;
  for (std::uint32_t use = 0; use < uses_.size(); ++use) {
    for (const BucketLayout::RangeIndex& place : layout_.places[use]) {
      const BucketLayout::OwnedRange& part = layout_.part(place);
      if (part.owner != owner_) continue;
      const auto [sum, is_first] = first.emplace(parameter_of_[use], own_sum(place));
      if (!is_first)
        sums_.math().add_into(sum->second, own_sum(place), layout_.buckets[place.bucket].sum,
                              part.size());
    }
  }
}

}  // namespace trireme::inline v0::parallel
