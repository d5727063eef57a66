// Gossip: decentralised averaging (D-PSGD: Lian et al. 2017, arXiv:1705.09056). After every H local
// steps a rank's weights become the mean of its own and its neighbours' in a graph (plan/mixing.h).
// The step comes first and the exchange follows ("adapt, then combine"). The ranks' mean is the
// model; only validations and checkpoints compute it, by an all-reduce. Moments stay with their
// rank.
#include "trireme/comm/mixing.h"
#include "trireme/decentralised/mixer.h"
#include "trireme/tensor/convert.h"

namespace trireme::inline v0::parallel {
namespace {

class Gossip final : public Mixer {
 public:
  Gossip(comm::Communicator& world, const LocalOptions& options)
      : world_(world),
        mixing_(plan::make_mixing(options.graph, world.size(), options.graph_seed)),
        mixer_(world) {
    plan::check(mixing_);
  }

  void attach(const Replica&) override {}

  bool mix(Replica& replica, std::int64_t round) override {
    std::vector<at::Tensor> own, host;  // host: copies on the CPU, where messages are
    std::vector<Buffer> buffers;
    for (const Buffer& weight : replica.weights) {
      own.push_back(tensor::view_of(weight));
      host.push_back(own.back().cpu());
      buffers.push_back(tensor::to_buffer(host.back()));
    }
    mixer_.mix(mixing_.round(round), buffers);
    for (std::size_t i = 0; i < own.size(); ++i) own[i].copy_(host[i]);
    return false;
  }

  void show(Replica& replica) override {
    average(world_, replica.weights, "weights");
    average(world_, replica.buffers, "buffers");
  }

  void meet(Replica& replica, bool) override {
    show(replica);
    average(world_, replica.moments, "moments");
  }

  void start(Replica&) override {}
  std::vector<NamedShard> state() override { return {}; }

 private:
  comm::Communicator& world_;
  plan::Mixing mixing_;
  comm::GossipMixer mixer_;
};

}  // namespace

std::unique_ptr<Mixer> make_gossip(comm::Communicator& world, const LocalOptions& options) {
  return std::make_unique<Gossip>(world, options);
}

}  // namespace trireme::inline v0::parallel
