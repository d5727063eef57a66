// Easgd: elastic averaging (Zhang, Choromanska, LeCun 2015, arXiv:1412.6651), the synchronous form
// of equations 5 and 6. Every H steps each rank moves towards a centre by alpha = beta/N of its
// distance, and the centre moves towards the ranks' mean by beta (0.9 in the paper). Ranks stay
// apart and explore; the centre is the model.
//
// There is no server: every rank keeps the centre and computes the same new one from the ranks'
// mean, by an all-reduce. The move comes after the step; the paper takes gradient and distance at
// the same weights. Moments stay with their rank. A checkpoint has the centre and the moments'
// mean, and all ranks go on from these.
#pragma once

#include "trireme/decentralised/mixer.h"

namespace trireme::inline v0::parallel {

class Easgd final : public Mixer {
 public:
  Easgd(comm::Communicator& world, const LocalOptions& options)
      : world_(world), beta_(options.elastic) {}

  void attach(const Replica& replica) override;
  void mix(Replica& replica, std::int64_t round) override;
  bool brings_together() const noexcept override { return false; }
  void show(Replica& replica) override;
  void meet(Replica& replica, bool mixed) override;
  void start(Replica& replica) override;
  std::vector<NamedShard> state() override { return {}; }

 private:
  comm::Communicator& world_;
  double beta_;
  std::vector<NamedShard> centre_;  // one per parameter
};

}  // namespace trireme::inline v0::parallel
