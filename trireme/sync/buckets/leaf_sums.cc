#include "trireme/sync/buckets/leaf_sums.h"

#include <algorithm>

namespace trireme::inline v0::parallel {

LeafSums::LeafSums(std::vector<Range> buckets, Allocate allocate)
    : buckets_(std::move(buckets)), allocate_(std::move(allocate)) {
  for (const Range& bucket : buckets_) {
    begin_.push_back(slot_bytes_);
    slot_bytes_ += bucket.count * size_of(bucket.dtype);
  }
  reserve(1);
  math_ = &tensor::flat_math(slots_.front().device());
}

void LeafSums::reserve(int slots) {
  while (slots_.size() < static_cast<std::size_t>(slots))
    slots_.push_back(allocate_(std::max<std::size_t>(slot_bytes_, 64)));
}

std::byte* LeafSums::at(int slot, std::uint32_t bucket, std::size_t element) const {
  const Range& range = buckets_[bucket];
  return slots_[static_cast<std::size_t>(slot)].bytes().data() + begin_[bucket] +
         (element - range.first) * size_of(range.dtype);
}

Buffer LeafSums::buffer(int slot, std::uint32_t bucket) const {
  const Range& range = buckets_[bucket];
  return slots_[static_cast<std::size_t>(slot)].buffer(begin_[bucket], range.count, range.dtype);
}

std::vector<comm::Term> LeafSums::terms(const LeafPlan& plan, std::uint32_t bucket) const {
  std::vector<comm::Term> terms;
  for (const kernel::LeafRange& node : plan.terms)
    terms.push_back({buffer(static_cast<int>(terms.size()), bucket), node.first, node.count});
  return terms;
}

tensor::Finite LeafSums::add(LeafStep step, std::uint32_t bucket, std::size_t element,
                             const void* gradient, DType gradient_type, double weight,
                             std::size_t count) {
  std::vector<const void*> open;
  for (int k = 0; k < step.merges; ++k) open.push_back(at(step.slot + k, bucket, element));
  return math_->add_leaf(gradient, gradient_type, weight, open, at(step.slot, bucket, element),
                         count);
}

}  // namespace trireme::inline v0::parallel
