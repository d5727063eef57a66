// Gossip: decentralised averaging (D-PSGD: Lian et al. 2017, arXiv:1705.09056). After every H local
// steps a rank's weights become the mean of its own and its neighbours' in a graph (plan/mixing.h);
// nobody reduces over all ranks. The step comes first and the exchange follows ("adapt, then
// combine"). The ranks' mean is the model.
//
// Moments stay with their rank. A validation and a checkpoint need the mean over all ranks; it is
// taken by an all-reduce, the only one.
#pragma once

#include "trireme/comm/mixing.h"
#include "trireme/decentralised/mixer.h"

namespace trireme::inline v0::parallel {

class Gossip final : public Mixer {
 public:
  /// ConfigError for an unknown graph.
  Gossip(comm::Communicator& world, const LocalOptions& options);

  void attach(const Replica&) override {}
  void mix(Replica& replica, std::int64_t round) override;
  bool brings_together() const noexcept override { return false; }
  void show(Replica& replica) override;
  void meet(Replica& replica, bool mixed) override;
  void start(Replica&) override {}
  std::vector<NamedShard> state() override { return {}; }

 private:
  comm::Communicator& world_;
  plan::Mixing mixing_;
  comm::GossipMixer mixer_;
};

}  // namespace trireme::inline v0::parallel
