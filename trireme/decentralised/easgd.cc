#include "trireme/decentralised/easgd.h"

#include "trireme/kernel/mixing.h"
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
    const Buffer& own = replica.weights[i];
    kernel::elastic(alpha, beta_, replica.scratch[i].data, own.data,
                    tensor::to_buffer(centre_[i].local).data, own.dtype, own.count);
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
