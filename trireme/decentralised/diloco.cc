#include "trireme/decentralised/diloco.h"

#include "trireme/kernel/mixing.h"
#include "trireme/kernel/optimizers/apply.h"
#include "trireme/tensor/convert.h"

namespace trireme::inline v0::parallel {
namespace {

// As torch.optim.SGD with nesterov; a momentum of zeros gives the same first step.
template <class T>
void outer_step(const LocalOptions& options, const Buffer& delta, const Buffer& weight,
                const Buffer& momentum) {
  const kernel::SgdRule rule{.momentum = options.outer_momentum,
                             .rate = options.outer_rate,
                             .nesterov = options.outer_momentum > 0,
                             .first = false};
  kernel::apply(rule, {static_cast<const T*>(delta.data)},
                {static_cast<T*>(weight.data), static_cast<T*>(momentum.data)}, nullptr,
                weight.count);
}

}  // namespace

void DiLoCo::attach(const Replica& replica) {
  common_ = copies_of(replica.masters, "common/");
  momentum_ = copies_of(replica.masters, "outer/");
  for (NamedShard& shard : momentum_) {
    shard.name += ".momentum";
    shard.local.zero_();
  }
}

void DiLoCo::start(Replica& replica) { copy_into(common_, replica.weights); }

void DiLoCo::mix(Replica& replica, std::int64_t) {
  average(world_, replica.weights, "weights");
  average(world_, replica.buffers, "buffers");
  for (std::size_t i = 0; i < common_.size(); ++i) {
    const Buffer& mean = replica.weights[i];
    const Buffer common = tensor::to_buffer(common_[i].local);
    const Buffer momentum = tensor::to_buffer(momentum_[i].local);
    kernel::subtract(common.data, mean.data, mean.data, mean.dtype, mean.count);
    if (mean.dtype == DType::F64) {
      outer_step<double>(options_, mean, common, momentum);
    } else {
      outer_step<float>(options_, mean, common, momentum);
    }
  }
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

std::vector<NamedShard> DiLoCo::state() { return momentum_; }

}  // namespace trireme::inline v0::parallel
