// Options of local_sgd and its relatives (parallel.sync), under which each rank trains its own copy
// of the model and exchanges weights now and then. Plain values.
#pragma once

#include <cstdint>
#include <string>

namespace trireme::inline v0 {

struct LocalOptions {
  /// Steps of a rank on its own copy between two exchanges (H in the papers).
  int steps = 8;
  /// This many first steps of the run are synchronous, as under plain; local ones follow
  /// (post-local SGD: Lin et al. 2020, arXiv:1808.07217).
  std::int64_t post_local_after = 0;
  /// DiLoCo's outer SGD: its rate and Nesterov's momentum. The defaults are the paper's.
  double outer_rate = 0.7, outer_momentum = 0.9;
  /// EASGD's beta: in an exchange the centre moves by beta of its distance to the ranks' mean, and
  /// a rank by beta/N of its distance to the centre. 0.9 in the paper.
  double elastic = 0.9;
  /// Gossip's graph: ring | exponential | one_peer | random (plan/mixing.h), and the seed of
  /// random.
  std::string graph = "one_peer";
  std::uint64_t graph_seed = 1;
};

}  // namespace trireme::inline v0
