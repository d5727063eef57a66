#include "trireme/optim/state_store.h"

#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>

#include <utility>

#include "trireme/tensor/convert.h"
#include "trireme/tensor/devices/device.h"

namespace trireme::inline v0::optim {
namespace {

at::Tensor flat(const OwnedSlice& slice, void* data, DType type) {
  return tensor::view_of({.data = data,
                          .count = static_cast<std::size_t>(slice.size()),
                          .dtype = type,
                          .device = slice.device});
}

}  // namespace

void StateStore::add(const OwnedSlice& slice, const std::vector<bool>& has) {
  const at::Device device = tensor::at_device(slice.device);
  const at::ScalarType type = tensor::scalar_type_of(slice.master_dtype);
  Slice& added = slices_.emplace_back();
  added.state_moves = on_host_ && !device.is_cpu();
  added.weight_moves = slice.weight_on_host();
  if ((added.state_moves || added.weight_moves) && !streams_) streams_.emplace(device);
  for (const bool one : has) {
    at::Tensor& tensor = added.kept.emplace_back();
    if (!one) continue;
    tensor = added.state_moves ? memory_.take(slice.size(), type).zero_()
                               : at::zeros({slice.size()}, at::TensorOptions(device).dtype(type));
  }
  added.weight =
      added.weight_moves ? slice.host_weight : flat(slice, slice.weight, slice.master_dtype);
  added.compute = slice.host_compute;
  if (slice.compute != nullptr && !added.compute.defined())
    added.compute = flat(slice, slice.compute, slice.compute_dtype);
  for (const at::Tensor& one : {slice.host_weight, slice.host_compute})
    if (one.defined()) weights_on_host_ += one.nbytes();
}

std::span<const at::Tensor> StateStore::fetch(std::size_t slice) {
  Slice& one = slices_[slice];
  if (streams_) {
    if (slice > 0) free_before(slice - 1);
    start_fetch(one);
    if (slice + 1 < slices_.size()) start_fetch(slices_[slice + 1]);
    streams_->wait(*one.ready);
  }
  return one.state_moves ? one.fetched_state : one.kept;
}

void StateStore::store(std::size_t slice) {
  Slice& one = slices_[slice];
  if (!one.state_moves) return;
  for (std::size_t k = 0; k < one.kept.size(); ++k)
    if (one.kept[k].defined()) streams_->store(one.fetched_state[k], one.kept[k]);
  one.stored.emplace(streams_->stored());
}

void StateStore::store_weight(std::size_t slice) {
  Slice& one = slices_[slice];
  if (!one.weight_moves) return;
  if (one.compute.defined() && one.compute.is_cpu()) {
    one.sent_compute = one.fetched_weight.to(one.compute.scalar_type());
    streams_->store(one.sent_compute, one.compute);
  } else if (one.compute.defined()) {
    one.compute.copy_(one.fetched_weight);
  }
  streams_->store(one.fetched_weight, one.weight);
  one.stored.emplace(streams_->stored());
}

void StateStore::end_pass() {
  if (!streams_) return;
  free_before(slices_.size());
  first_fetched_ = 0;
}

void StateStore::wait() const {
  for (const Slice& slice : slices_)
    for (const auto* event : {&slice.ready, &slice.stored})
      if (*event) (*event)->synchronize();
}

at::Tensor StateStore::fetched(const at::Tensor& kept) const {
  if (!kept.defined()) return {};
  const at::Tensor tensor =
      at::empty_like(kept, at::TensorOptions(streams_->device()).pinned_memory(false));
  streams_->fetch(kept, tensor);
  return tensor;
}

void StateStore::start_fetch(Slice& slice) const {
  if (std::exchange(slice.fetched, true)) return;
  if (slice.state_moves)
    for (const at::Tensor& kept : slice.kept) slice.fetched_state.push_back(fetched(kept));
  if (slice.weight_moves) slice.fetched_weight = fetched(slice.weight);
  slice.ready.emplace(streams_->fetched());
}

// Memory that copies have used is free for the computing stream once it has waited for them.
void StateStore::free_before(std::size_t slice) {
  for (; first_fetched_ < slice; ++first_fetched_) {
    Slice& one = slices_[first_fetched_];
    if (!std::exchange(one.fetched, false)) continue;
    for (const auto* event : {&one.ready, &one.stored})
      if (*event) streams_->wait(**event);
    one.fetched_state.clear();
    one.fetched_weight = one.sent_compute = at::Tensor();
  }
}

}  // namespace trireme::inline v0::optim
