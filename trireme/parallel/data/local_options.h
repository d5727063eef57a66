// What local_sgd and its relatives (parallel.sync) have in common: ranks that each train a copy of
// the model and exchange weights now and then. Plain values.
#pragma once

#include <cstdint>
#include <string>

namespace trireme {
inline namespace v0 {

struct LocalOptions {
  /// Steps that a rank makes on its own copy between two exchanges (H in the papers).
  int steps = 8;
  /// The first steps of the run are synchronous, as under plain, and local ones follow (post-local
  /// SGD: Lin et al. 2020, arXiv:1808.07217).
  std::int64_t post_local_after = 0;
  /// DiLoCo's outer SGD: its rate, and Nesterov's momentum; of the paper.
  double outer_rate = 0.7, outer_momentum = 0.9;
  /// EASGD's beta: the share of its way to the ranks' mean that the centre goes in an exchange; a
  /// rank goes beta/N of its way to the centre. 0.9 in the paper.
  double elastic = 0.9;
  /// Of gossip: ring | exponential | one_peer | random (plan/mixing.h), and the random one's seed.
  std::string graph = "one_peer";
  std::uint64_t graph_seed = 1;
};

}  // namespace v0
}  // namespace trireme
