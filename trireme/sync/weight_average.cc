#include "trireme/sync/weight_average.h"

#include "trireme/base/check.h"
#include "trireme/base/error.h"
#include "trireme/base/words.h"
#include "trireme/tensor/convert.h"
#include "trireme/tensor/flat_math.h"

namespace trireme::inline v0::parallel {
namespace {

// Without fused multiply-add: an element's bits do not depend on its place in the loop.
template <class T>
void move_towards(T* average, const T* weight, T share, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) average[i] += share * (weight[i] - average[i]);
}

at::Tensor weight_of(const optim::OwnedSlice& slice) {
  return tensor::view_of({.data = slice.weight,
                          .count = static_cast<std::size_t>(slice.size()),
                          .dtype = slice.master_dtype,
                          .device = slice.weight_device()});
}

}  // namespace

WeightAverage::WeightAverage(double decay, std::span<const optim::OwnedSlice> slices)
    : decay_(decay) {
  if (!(decay >= 0 && decay < 1)) {
    throw ConfigError("the decay of an average of weights is " + number_text(decay),
                      {.operation = "strategy", .advice = "It must be at least 0 and below 1."});
  }
  for (const optim::OwnedSlice& slice : slices) {
    averages_.push_back(weight_of(slice).clone());
  }
}

void WeightAverage::update(std::span<const optim::OwnedSlice> slices) {
  TRIREME_CHECK(slices.size() == averages_.size());
  for (std::size_t i = 0; i < slices.size(); ++i) {
    const optim::OwnedSlice& slice = slices[i];
    if (tensor::implementation_of(slice.weight_device()) == tensor::Implementation::LibTorch) {
      averages_[i] += (weight_of(slice) - averages_[i]) * (1 - decay_);
      continue;
    }
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
    const at::Tensor weight = weight_of(slices[i]), trained = weight.clone();
    weight.copy_(averages_[i]);
    averages_[i].copy_(trained);
  }
}

std::int64_t WeightAverage::bytes_on_host() const {
  std::size_t bytes = 0;
  for (const at::Tensor& average : averages_)
    if (average.is_cpu()) bytes += average.nbytes();
  return static_cast<std::int64_t>(bytes);
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
