// Options of parallel.sync = server, under which parameter servers hold the optimizer's state and
// update the weights. Plain values.
#pragma once

#include <cstdint>

namespace trireme::inline v0 {

struct ServerOptions {
  /// 0: synchronous; without `backup` the bits are those of plain data parallel. s > 0: a worker is
  /// at most s pushes ahead of the slowest. -1: nobody waits. If it is not 0, every worker trains on
  /// batches of its own, and its gradient is applied when it arrives.
  std::int64_t staleness = 0;
  /// Synchronous: a step is complete without this many of the workers' gradients, whichever come
  /// last (Chen et al. 2016, arXiv:1604.00981). Every worker trains on batches of its own.
  int backup = 0;
  /// Lambda of delay compensation (DC-ASGD: Zheng et al. 2017, arXiv:1609.08326); 0: off.
  double compensation = 0;
  /// With a staleness that is not 0, a push is answered with the weights that momentum will have made
  /// when the worker's next gradient is applied (Shard::predicted()).
  bool prediction = false;

  /// Servers that have a copy of each shard; 1: none but its own. With more, the death of a server
  /// loses nothing that a worker was told is done.
  int replicas = 1;

  /// Whether workers train on their own, and need no other worker to be there.
  bool alone() const noexcept { return staleness != 0 || backup > 0; }
};

/// ConfigError unless each shard can have as many copies.
void check_replicas(int replicas, int servers);
/// ConfigError, with the reason, unless the numbers go together.
void check_server_options(const ServerOptions& options, int workers, int servers);

}  // namespace trireme::inline v0
