// DiLoCo (Douillard et al. 2023, arXiv:2311.08105): ranks train copies by an inner optimizer
// (AdamW there) for H steps; what the copies' mean has moved by is the gradient of an outer
// optimizer, SGD with Nesterov's momentum, which moves the common weights, where all go on from.
//
// Every rank keeps the common weights and the outer momentum and computes the same. The inner
// moments stay with their rank (as there), but for a checkpoint, which has their mean. With rate 1
// and no momentum it is local SGD whose moments are not averaged.
#pragma once

#include "trireme/parallel/data/mixer.h"

namespace trireme {
inline namespace v0 {
namespace parallel {

class DiLoCo final : public Mixer {
 public:
  DiLoCo(comm::Communicator& world, const LocalOptions& options)
      : world_(world), options_(options) {}

  void attach(const Replica& replica) override;
  void mix(Replica& replica, std::int64_t round) override;
  bool brings_together() const noexcept override { return false; }
  void show(Replica& replica) override;
  void meet(Replica& replica, bool mixed) override;
  void start(Replica& replica) override;
  std::vector<NamedShard> state() override;

 private:
  comm::Communicator& world_;
  LocalOptions options_;
  std::vector<NamedShard> common_, momentum_;  // one per parameter
};

}  // namespace parallel
}  // namespace v0
}  // namespace trireme
