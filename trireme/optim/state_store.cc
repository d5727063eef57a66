#include "trireme/optim/state_store.h"

#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "trireme/tensor/convert.h"
#include "trireme/tensor/device.h"

namespace trireme::inline v0::optim {

void StateStore::add(const OwnedSlice& slice, const std::vector<bool>& has) {
  const at::Device device = tensor::at_device(slice.device);
  const at::ScalarType type = tensor::scalar_type_of(slice.master_dtype);
  const bool moves = on_host_ && !device.is_cpu();
  if (moves && !streams_) streams_.emplace(device);
  Slice& added = slices_.emplace_back();
  for (const bool one : has) {
    at::Tensor& tensor = added.kept.emplace_back();
    if (!one) continue;
    tensor = moves ? tensor::CopyStreams::pinned({slice.size()}, type).zero_()
                   : at::zeros({slice.size()}, at::TensorOptions(device).dtype(type));
    if (moves) bytes_on_host_ += tensor.nbytes();
  }
}

std::span<const at::Tensor> StateStore::fetch(std::size_t slice) {
  if (!streams_) return slices_[slice].kept;
  if (slice > 0) free_before(slice - 1);
  if (slices_[slice].fetched.empty()) start_fetch(slices_[slice]);
  if (slice + 1 < slices_.size() && slices_[slice + 1].fetched.empty())
    start_fetch(slices_[slice + 1]);
  streams_->wait(*slices_[slice].ready);
  return slices_[slice].fetched;
}

void StateStore::store(std::size_t slice) {
  if (!streams_) return;
  Slice& one = slices_[slice];
  for (std::size_t k = 0; k < one.kept.size(); ++k)
    if (one.kept[k].defined()) streams_->store(one.fetched[k], one.kept[k]);
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

void StateStore::start_fetch(Slice& slice) const {
  for (const at::Tensor& kept : slice.kept) {
    at::Tensor& tensor = slice.fetched.emplace_back();
    if (!kept.defined()) continue;
    tensor = at::empty_like(kept, at::TensorOptions(streams_->device()).pinned_memory(false));
    streams_->fetch(kept, tensor);
  }
  slice.ready.emplace(streams_->fetched());
}

// Memory that copies have used is free for the computing stream once it has waited for them.
void StateStore::free_before(std::size_t slice) {
  for (; first_fetched_ < slice; ++first_fetched_) {
    Slice& one = slices_[first_fetched_];
    for (const auto* event : {&one.ready, &one.stored})
      if (!one.fetched.empty() && *event) streams_->wait(**event);
    one.fetched.clear();
  }
}

}  // namespace trireme::inline v0::optim
