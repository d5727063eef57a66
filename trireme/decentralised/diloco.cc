// DiLoCo (Douillard et al. 2023, arXiv:2311.08105): ranks train copies with an inner optimizer
// (AdamW in the paper) for H steps. The change of the copies' mean is then the gradient of an outer
// optimizer, SGD with Nesterov's momentum. All ranks go on from the weights that it computes.
//
// Every rank keeps the common weights and the outer momentum and computes the same update. The
// inner moments stay with their rank, as in the paper; a checkpoint has their mean. With rate 1 and
// no momentum it is local SGD without averaged moments.
#include <ATen/Functions.h>

#include "trireme/decentralised/mixer.h"
#include "trireme/optim/optimizer.h"
#include "trireme/tensor/convert.h"

namespace trireme::inline v0::parallel {
namespace {

class DiLoCo final : public Mixer {
 public:
  DiLoCo(comm::Communicator& world, const LocalOptions& options)
      : world_(world),
        outer_(optim::make_optimizer(Sgd{.learning_rate = options.outer_rate,
                                         .momentum = options.outer_momentum,
                                         .nesterov = options.outer_momentum > 0})) {}

  // The outer optimizer updates the common weights. The replica's weights hold its gradient.
  void attach(const Replica& replica) override {
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

  void start(Replica& replica) override { copy_into(common_, replica.weights); }

  bool mix(Replica& replica, std::int64_t) override {
    average(world_, replica.weights, "weights");
    average(world_, replica.buffers, "buffers");
    for (std::size_t i = 0; i < common_.size(); ++i) {
      at::Tensor mean = tensor::view_of(replica.weights[i]);
      at::sub_out(mean, common_[i].local.view({-1}), mean);
    }
    outer_->apply(outer_->base_learning_rate(), 1);
    copy_from(common_, replica.weights);
    return false;
  }

  void show(Replica& replica) override {
    copy_from(common_, replica.weights);
    average(world_, replica.buffers, "buffers");
  }

  // Ends the round early.
  void meet(Replica& replica, bool mixed) override {
    if (!mixed) mix(replica, 0);
    average(world_, replica.moments, "moments");
  }

  std::vector<NamedShard> state() override {
    std::vector<NamedShard> momentum = outer_->state();
    for (NamedShard& shard : momentum)
      shard.name = shard.name.substr(0, shard.name.rfind('.')) + ".momentum";
    return momentum;
  }

 private:
  comm::Communicator& world_;
  std::unique_ptr<optim::Optimizer> outer_;
  std::vector<NamedShard> common_;  // one per parameter
};

}  // namespace

std::unique_ptr<Mixer> make_diloco(comm::Communicator& world, const LocalOptions& options) {
  return std::make_unique<DiLoCo>(world, options);
}

}  // namespace trireme::inline v0::parallel
