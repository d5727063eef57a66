#include "trireme/optim/slice_optimizer.h"

#include <ATen/ops/_foreach_copy.h>
#include <c10/core/GradMode.h>

#include "trireme/base/check.h"
#include "trireme/tensor/convert.h"
#include "trireme/tensor/devices/device.h"
#include "trireme/tensor/flat_math.h"

namespace trireme::inline v0::optim {
void SliceOptimizer::attach(std::span<const OwnedSlice> slices,
                            std::span<const ParameterInfo> parameters,
                            std::shared_ptr<SharedSums> sums) {
  TRIREME_CHECK(slices_.size() == 0u);
  slices_.assign(slices.begin(), slices.end());
  parameters_.assign(parameters.begin(), parameters.end());
  sums_ = std::move(sums);
  numbers_ = numbers_of(slices_, parameters_, groups_, weight_decay_);
  for (const OwnedSlice& slice : slices_) {
    TRIREME_CHECK((slice.master_dtype == DType::F32 || slice.master_dtype == DType::F64) == true);
    TRIREME_CHECK(slice.parameter < parameters_.size());
    TRIREME_CHECK(slice.begin % static_cast<std::int64_t>(kernel::kNormChunk) == 0);
    std::vector<bool> has;
    for (std::size_t kind = 0; kind < state_names_.size(); ++kind)
      has.push_back(has_state(slice, kind));
    state_.add(slice, has);
  }
}

void SliceOptimizer::apply(double learning_rate, double scale) {
  const c10::AutoGradMode no_grad(false);
  update(learning_rate, scale);
  state_.end_pass();
  std::vector<at::Tensor> copies, weights;
  for (std::size_t i = 0; i < slices_.size(); ++i) {
    const OwnedSlice& slice = slices_[i];
    if (slice.compute == nullptr || slice.size() == 0) continue;
    if (by_tensors(slice)) {
      if (slice.weight_on_host()) continue;  // store_weight() has done it
      copies.push_back(state_.compute(i));
      weights.push_back(state_.weight(i));
    } else if (slice.compute_dtype == DType::F16) {  // kernels write bf16 themselves
      kernel::convert(static_cast<const float*>(slice.weight), static_cast<Float16*>(slice.compute),
                      static_cast<std::size_t>(slice.size()));
    }
  }
  if (!copies.empty()) at::_foreach_copy_(copies, weights);
}

bool SliceOptimizer::by_tensors(const OwnedSlice& slice) {
  return tensor::implementation_of(slice.device) == tensor::Implementation::LibTorch;
}

at::Tensor SliceOptimizer::gradient_of(const OwnedSlice& slice) {
  return tensor::view_of({.data = const_cast<void*>(slice.gradient),
                          .count = static_cast<std::size_t>(slice.size()),
                          .dtype = slice.master_dtype,
                          .device = slice.device});
}

std::vector<NamedShard> SliceOptimizer::state() {
  state_.wait();
  std::vector<NamedShard> shards;
  for (std::size_t i = 0; i < slices_.size(); ++i) {
    const OwnedSlice& slice = slices_[i];
    for (std::size_t kind = 0; kind < state_names_.size(); ++kind) {
      const at::Tensor& local = state_.kept(i)[kind];
      if (!local.defined()) continue;
      shards.push_back({.name = slice.name + "." + state_names_[kind],
                        .dtype = slice.master_dtype,
                        .shape = parameters_[slice.parameter].shape,
                        .begin = slice.begin,
                        .end = slice.end,
                        .local = local});
    }
  }
  return shards;
}

std::int64_t SliceOptimizer::num_elements(std::uint32_t parameter) const {
  std::int64_t count = 1;
  for (const std::int64_t size : parameters_[parameter].shape) count *= size;
  return count;
}

std::uint32_t SliceOptimizer::num_chunks(std::uint32_t parameter) const {
  const auto chunk = static_cast<std::int64_t>(kernel::kNormChunk);
  return static_cast<std::uint32_t>((num_elements(parameter) + chunk - 1) / chunk);
}

double fold(std::span<const double> chunk_sums) {
  double sum = 0;
  for (const double one : chunk_sums) sum += one;
  return sum;
}

}  // namespace trireme::inline v0::optim
