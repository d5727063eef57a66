#include "trireme/decentralised/easgd.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>

#include "trireme/tensor/convert.h"

namespace trireme::inline v0::parallel {

void Easgd::attach(const Replica& replica) { centre_ = copies_of(replica.masters, "centre/"); }

void Easgd::start(Replica& replica) { copy_into(centre_, replica.weights); }

void Easgd::mix(Replica& replica, std::int64_t) {
  for (std::size_t i = 0; i < replica.weights.size(); ++i)
    copy_values(replica.weights[i], replica.scratch[i]);
  average(world_, replica.scratch, "weights");
  average(world_, replica.buffers, "buffers");
  const double alpha = beta_ / world_.size();
  for (std::size_t i = 0; i < centre_.size(); ++i) {
    at::Tensor own = tensor::view_of(replica.weights[i]),
               mean = tensor::view_of(replica.scratch[i]);
    at::Tensor centre = centre_[i].local.view({-1});
    const at::Tensor pull = (own - centre).mul_(alpha);
    centre.add_(mean.sub_(centre).mul_(beta_));
    own.sub_(pull);
  }
}

void Easgd::show(Replica& replica) {
  copy_from(centre_, replica.weights);
  average(world_, replica.buffers, "buffers");
}

void Easgd::meet(Replica& replica, bool mixed) {
  if (!mixed) mix(replica, 0);
  copy_from(centre_, replica.weights);
  average(world_, replica.moments, "moments");
}

}  // namespace trireme::inline v0::parallel
