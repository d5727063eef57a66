#include "trireme/decentralised/local_sync.h"

#include <ATen/core/Tensor.h>

#include "trireme/base/check.h"
#include "trireme/tensor/convert.h"
#include "trireme/tensor/state.h"

namespace trireme::inline v0::parallel {

LocalSync::LocalSync(const SyncSetup& setup, std::unique_ptr<Mixer> mixer,
                     const LocalOptions& options, std::function<std::int64_t()> steps_done)
    : PlainSync(setup),
      mixer_(std::move(mixer)),
      local_options_(options),
      steps_done_(std::move(steps_done)) {}

void LocalSync::attach(Replica replica, std::function<void()> refresh) {
  replica_ = std::move(replica);
  refresh_ = std::move(refresh);
  TRIREME_CHECK(replica_.weights.size() == owned().size());
  for (std::size_t i = 0; i < replica_.weights.size(); ++i) {
    replica_.scratch.push_back(sum_of(i));
    TRIREME_CHECK(replica_.scratch[i].bytes() == replica_.weights[i].bytes());
  }
  mixer_->attach(replica_);
}

void LocalSync::begin(std::uint32_t total, std::span<const Use> order) {
  if (total > 0) {
    local_ = steps_done_() >= local_options_.post_local_after;
    if (local_ && !started_) mixer_->start(replica_);
    started_ = local_;
    reduce_over_ranks(!local_);
  }
  PlainSync::begin(total, order);
}

Work LocalSync::publish() {
  if (!local_) return {};
  together_ = mixed_ = false;
  const std::int64_t done = steps_done_() - local_options_.post_local_after;
  if (done % local_options_.steps != 0) return {};
  together_ = mixer_->mix(replica_, done / local_options_.steps - 1);
  refresh_();
  mixed_ = true;
  return {};
}

void LocalSync::meet() {
  if (together_) return;
  mixer_->meet(replica_, mixed_);
  refresh_();
  together_ = mixed_ = true;
}

void LocalSync::restored() {
  started_ = false;
  together_ = true;
}

std::shared_ptr<void> LocalSync::show() {
  if (together_) return nullptr;
  std::vector<at::Tensor> shown = replica_.buffers, own;
  for (const Buffer& weight : replica_.weights) shown.push_back(tensor::view_of(weight));
  for (const at::Tensor& tensor : shown) own.push_back(tensor.clone());
  auto put_back = std::shared_ptr<void>(nullptr, [this, shown, own](void*) {
    for (std::size_t i = 0; i < shown.size(); ++i) tensor::copy_elements(shown[i], own[i]);
    refresh_();
  });
  mixer_->show(replica_);
  refresh_();
  return put_back;
}

}  // namespace trireme::inline v0::parallel
