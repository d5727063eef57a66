// LeafSums: the memory in which a rank adds up leaves: slots of a LeafPlan, each with one node of
// the tree sum for every bucket. Slot 0, where the sums end, never moves: optimizers keep its
// address. Not thread safe, but different buckets may be added to at the same time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "trireme/comm/communicator.h"
#include "trireme/sync/buckets/leaf_plan.h"
#include "trireme/tensor/flat_math.h"

namespace trireme::inline v0::parallel {

class LeafSums {
 public:
  /// The elements of a bucket that a slot holds.
  struct Range {
    std::size_t first = 0, count = 0;
    DType dtype = DType::F32;
  };
  /// Returns an arena; collective if ranks reduce there.
  using Allocate = std::function<comm::Arena(std::size_t bytes)>;

  /// Makes the first slot.
  LeafSums(std::vector<Range> buckets, Allocate allocate);
  /// Makes more slots if there are fewer than `slots`.
  void reserve(int slots);
  std::size_t bytes() const noexcept { return slots_.size() * slot_bytes_; }

  /// Element number `element` of a bucket.
  std::byte* at(int slot, std::uint32_t bucket, std::size_t element) const;
  /// A slot's whole range of a bucket.
  Buffer buffer(int slot, std::uint32_t bucket) const;
  /// `plan`'s terms of a bucket; they are in the first slots.
  std::vector<comm::Term> terms(const LeafPlan& plan, std::uint32_t bucket) const;
  /// Adds a leaf to elements [element, element + count) of a bucket (FlatMath::add_leaf).
  tensor::Finite add(LeafStep step, std::uint32_t bucket, std::size_t element, const void* gradient,
                     DType gradient_type, double weight, std::size_t count);
  const tensor::FlatMath& math() const noexcept { return *math_; }

 private:
  std::vector<Range> buckets_;
  std::vector<std::size_t> begin_;  // bytes within a slot, per bucket
  std::size_t slot_bytes_ = 0;
  Allocate allocate_;
  std::vector<comm::Arena> slots_;
  const tensor::FlatMath* math_;  // of the slots' device
};

}  // namespace trireme::inline v0::parallel
