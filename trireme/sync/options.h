// The groups of options in StrategyOptions, such as {.local = {.steps = 16}}. Plain values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <tuple>

namespace trireme::inline v0 {

/// For parallel.sync = local_sgd and its relatives, under which each rank trains its own copy of
/// the model and exchanges weights now and then.
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
  /// Gossip's graph: ring | exponential | one_peer | random (plan/mixing.h), and random's seed.
  std::string graph = "one_peer";
  std::uint64_t graph_seed = 1;
};

/// For parallel.sync = server: parameter servers hold the optimizer's state and update the weights.
struct ServerOptions {
  /// 0: synchronous; without `backup` the bits are those of plain data parallel. s > 0: a worker is
  /// at most s pushes ahead of the slowest. -1: nobody waits. If it is not 0, every worker trains
  /// on its own batches, and its gradient is applied when it arrives. Not given: 0, or what the name
  /// of a strategy means.
  std::optional<std::int64_t> staleness = {};
  /// Synchronous: a step does not wait for this many of the workers' gradients, the last ones (Chen
  /// et al. 2016, arXiv:1604.00981). Every worker trains on its own batches.
  int backup = 0;
  /// Lambda of delay compensation (DC-ASGD: Zheng et al. 2017, arXiv:1609.08326); 0: off.
  double compensation = 0;
  /// With a staleness that is not 0: the answer to a push has the weights that momentum will have
  /// made when the worker's next gradient is applied (Shard::predicted()).
  bool prediction = false;

  /// Servers that hold each shard; 1: its own server only. With more, a dead server loses no update
  /// that a worker was told is done.
  int replicas = 1;

  /// The bound of staleness that applies.
  std::int64_t bound() const noexcept { return staleness.value_or(0); }
  /// Whether workers train independently, and wait for no other worker.
  bool alone() const noexcept { return bound() != 0 || backup > 0; }
  /// Options that mean the same are equal.
  friend bool operator==(const ServerOptions& one, const ServerOptions& other) noexcept {
    const auto meaning = [](const ServerOptions& options) {
      return std::tuple(options.bound(), options.backup, options.compensation, options.prediction,
                        options.replicas);
    };
    return meaning(one) == meaning(other);
  }
};

/// The factor on losses in fp16 (strategy/loss_scale.h).
struct LossScaleOptions {
  bool dynamic = true;         // false: the scale is fixed; an overflow is an error
  double initial = 65536;      // a power of two from 1 to 2^32
  std::int64_t window = 2000;  // steps without an overflow after which it doubles
};

/// Which steps are skipped as outliers (strategy/outlier_filter.h).
struct OutlierOptions {
  /// A step is skipped if its loss or gradient norm is more than `limit` standard deviations above
  /// the mean of the window; 0: no step is skipped.
  double limit = 0;
  /// The number of previous steps in the window. No step is skipped until the window is half full.
  /// Skipped steps enter it too, so that the filter adapts to a lasting change.
  int window = 128;
};

}  // namespace trireme::inline v0
