// DiLoCo (Douillard et al. 2023, arXiv:2311.08105): ranks train copies with an inner optimizer
// (AdamW in the paper) for H steps. The change of the copies' mean is then the gradient of an outer
// optimizer, SGD with Nesterov's momentum. All ranks go on from the weights that it computes.
//
// Every rank keeps the common weights and the outer momentum and computes the same update. The
// inner moments stay with their rank, as in the paper; a checkpoint has their mean. With rate 1 and
// no momentum it is local SGD without averaged moments.
#pragma once

#include "trireme/decentralised/mixer.h"
#include "trireme/optim/optimizer.h"

namespace trireme::inline v0::parallel {

class DiLoCo final : public Mixer {
 public:
  DiLoCo(comm::Communicator& world, const LocalOptions& options)
      : world_(world),
        outer_(optim::make_optimizer(Sgd{.learning_rate = options.outer_rate,
                                         .momentum = options.outer_momentum,
                                         .nesterov = options.outer_momentum > 0})) {}

  void attach(const Replica& replica) override;
  void mix(Replica& replica, std::int64_t round) override;
  bool brings_together() const noexcept override { return false; }
  void show(Replica& replica) override;
  void meet(Replica& replica, bool mixed) override;
  void start(Replica& replica) override;
  std::vector<NamedShard> state() override;

 private:
  comm::Communicator& world_;
  std::unique_ptr<optim::Optimizer> outer_;
  std::vector<NamedShard> common_;  // one per parameter
};

}  // namespace trireme::inline v0::parallel
