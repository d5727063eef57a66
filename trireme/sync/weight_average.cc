#include "trireme/sync/weight_average.h"

#include <ATen/ops/empty.h>

#include <algorithm>

#include "trireme/base/check.h"
#include "trireme/base/error.h"
#include "trireme/base/words.h"
#include "trireme/tensor/convert.h"

namespace trireme::inline v0::parallel {
namespace {

// A plain loop without fused multiply-add: an element's bits do not depend on its place in the
// loop.
template <class T>
void move_towards(T* average, const T* weight, T share, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) average[i] += share * (weight[i] - average[i]);
}

}  // namespace

WeightAverage::WeightAverage(double decay, std::span<const optim::OwnedSlice> slices)
    : decay_(decay) {
  if (!(decay >= 0 && decay < 1)) {
    throw ConfigError("the decay of an average of weights is " + number_text(decay),
                      {.operation = "strategy", .advice = "It must be at least 0 and below 1."});
  }
  for (const optim::OwnedSlice& slice : slices) {
    averages_.push_back(at::empty(
        {slice.size()}, at::TensorOptions().dtype(tensor::scalar_type_of(slice.master_dtype))));
    // Not memcpy: without an element, data_ptr() is null.
    std::copy_n(static_cast<const std::byte*>(slice.weight), averages_.back().nbytes(),
                static_cast<std::byte*>(averages_.back().data_ptr()));
  }
}

void WeightAverage::update(std::span<const optim::OwnedSlice> slices) {
  TRIREME_CHECK(slices.size() == averages_.size());
  for (std::size_t i = 0; i < slices.size(); ++i) {
    const optim::OwnedSlice& slice = slices[i];
    void* average = averages_[i].data_ptr();
    if (slice.master_dtype == DType::F64) {
      move_towards(static_cast<double*>(average), static_cast<const double*>(slice.weight),
                   1 - decay_, slice.size());
    } else {
      move_towards(static_cast<float*>(average), static_cast<const float*>(slice.weight),
                   static_cast<float>(1 - decay_), slice.size());
    }
  }
}

void WeightAverage::swap(std::span<const optim::OwnedSlice> slices) {
  TRIREME_CHECK(slices.size() == averages_.size());
  for (std::size_t i = 0; i < slices.size(); ++i) {
    auto* average = static_cast<std::byte*>(averages_[i].data_ptr());
    std::swap_ranges(average, average + averages_[i].nbytes(),
                     static_cast<std::byte*>(slices[i].weight));
  }
}

std::vector<NamedShard> WeightAverage::state(
    std::span<const optim::OwnedSlice> slices,
    std::span<const optim::ParameterInfo> parameters) const {
  std::vector<NamedShard> shards;
  for (std::size_t i = 0; i < slices.size(); ++i)
    shards.push_back({.name = slices[i].name,
                      .dtype = slices[i].master_dtype,
                      .shape = parameters[slices[i].parameter].shape,
                      .begin = slices[i].begin,
                      .end = slices[i].end,
                      .local = averages_[i]});
  return shards;
}

}  // namespace trireme::inline v0::parallel
