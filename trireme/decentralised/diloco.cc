#include "trireme/decentralised/diloco.h"

#include <ATen/Functions.h>

#include "trireme/tensor/convert.h"

namespace trireme::inline v0::parallel {

// The outer optimizer updates the common weights; a replica's weights hold its gradient then.
void DiLoCo::attach(const Replica& replica) {
  common_ = copies_of(replica.masters, "common/");
  std::vector<optim::OwnedSlice> slices;
  std::vector<optim::ParameterInfo> parameters;
  for (std::size_t i = 0; i < common_.size(); ++i) {
    const NamedShard& master = replica.masters[i];
    const Buffer weight = tensor::to_buffer(common_[i].local);
    slices.push_back({.parameter = static_cast<std::uint32_t>(i),
                      .name = "outer/" + master.name,
                      .end = static_cast<std::int64_t>(weight.count),
                      .master_dtype = weight.dtype,
                      .weight = weight.data,
                      .gradient = replica.weights[i].data,
                      .device = weight.device});
    parameters.push_back({.name = master.name, .shape = master.shape});
  }
  outer_->attach(slices, parameters);
  outer_->set_step_count(1);  // the momentum is there: zeros, or a checkpoint's
}

void DiLoCo::start(Replica& replica) { copy_into(common_, replica.weights); }

void DiLoCo::mix(Replica& replica, std::int64_t) {
  average(world_, replica.weights, "weights");
  average(world_, replica.buffers, "buffers");
  for (std::size_t i = 0; i < common_.size(); ++i) {
    at::Tensor mean = tensor::view_of(replica.weights[i]);
    at::sub_out(mean, common_[i].local.view({-1}), mean);
  }
  outer_->apply(outer_->base_learning_rate(), 1);
  copy_from(common_, replica.weights);
}

void DiLoCo::show(Replica& replica) {
  copy_from(common_, replica.weights);
  average(world_, replica.buffers, "buffers");
}

// Ends the round early.
void DiLoCo::meet(Replica& replica, bool mixed) {
  if (!mixed) mix(replica, 0);
  average(world_, replica.moments, "moments");
}

std::vector<NamedShard> DiLoCo::state() {
  std::vector<NamedShard> momentum = outer_->state();
  for (NamedShard& shard : momentum)
    shard.name = shard.name.substr(0, shard.name.rfind('.')) + ".momentum";
  return momentum;
}

}  // namespace trireme::inline v0::parallel
