// Easgd: elastic averaging (Zhang, Choromanska, LeCun 2015, arXiv:1412.6651), the synchronous form
// of equations 5 and 6. Every H steps each rank moves towards a centre by alpha = beta/N of its
// distance, and the centre moves towards the ranks' mean by beta (0.9 in the paper). Ranks stay
// apart and explore; the centre is the model.
//
// There is no server: every rank keeps the centre and computes the same new one from the ranks'
// mean, by an all-reduce. The move comes after the step; the paper takes gradient and distance at
// the same weights. Moments stay with their rank. A checkpoint has the centre and the moments'
// mean, and all ranks go on from these.
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>

#include "trireme/decentralised/mixer.h"
#include "trireme/tensor/convert.h"

namespace trireme::inline v0::parallel {
namespace {

class Easgd final : public Mixer {
 public:
  Easgd(comm::Communicator& world, const LocalOptions& options)
      : world_(world), beta_(options.elastic) {}

  void attach(const Replica& replica) override { centre_ = copies_of(replica.masters, "centre/"); }

  void start(Replica& replica) override { copy_into(centre_, replica.weights); }

  bool mix(Replica& replica, std::int64_t) override {
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
    return false;
  }

  void show(Replica& replica) override {
    copy_from(centre_, replica.weights);
    average(world_, replica.buffers, "buffers");
  }

  void meet(Replica& replica, bool mixed) override {
    if (!mixed) mix(replica, 0);
    copy_from(centre_, replica.weights);
    average(world_, replica.moments, "moments");
  }

  std::vector<NamedShard> state() override { return {}; }

 private:
  comm::Communicator& world_;
  double beta_;
  std::vector<NamedShard> centre_;  // one per parameter
};

}  // namespace

std::unique_ptr<Mixer> make_easgd(comm::Communicator& world, const LocalOptions& options) {
  return std::make_unique<Easgd>(world, options);
}

}  // namespace trireme::inline v0::parallel
