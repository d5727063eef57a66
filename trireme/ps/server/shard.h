// Shard: one server's part of the parameters, and its updates by gradients. It knows no worker and
// no network; a server calls it for one request after the other. Not thread safe.
//
// Updates are begun, and then made together, stretch by stretch (sweep.h). While one is under way,
// only push(), apply(), give_weights(), updates() and the rows may be used.
//
// Weights, gradient and state lie as ServedModel lays out the server's interval. The optimizer is
// the same as a rank's (optim/), so that equal gradients give equal bits wherever it runs.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "trireme/base/spread.h"
#include "trireme/kernel/tree_sum.h"
#include "trireme/optim/optimizer.h"
#include "trireme/ps/rows/row_shard.h"
#include "trireme/ps/served_model.h"
#include "trireme/ps/server/sweep.h"
#include "trireme/tensor/flat_math.h"

namespace trireme::inline v0::ps {

/// A worker's part of a sum over micro-batches: nodes of the tree sum (docs/numerics.md), one after
/// the other, each of ServedModel::sum_bytes(). `rows`: each table's, by node; or empty.
struct Terms {
  std::vector<kernel::LeafRange> nodes;
  std::span<const std::byte> memory;
  std::vector<std::vector<RowsView>> rows = {};
};

/// A worker's memory, into which an update also writes predicted(staleness) after it; or empty.
struct Destination {
  std::span<std::byte> memory;
  std::int64_t staleness = 0;
};

class Shard {
 public:
  /// ConfigError for an optimizer that needs whole parameters. `spread` divides loops among
  /// threads, and changes no bit. `predicts`: keeps what predicted() needs, one more copy of the
  /// weights. `keeps_rows`: RowShard's keeps_previous. `shared`: memory of bytes() for the weights,
  /// for others to read; it outlives this.
  Shard(ServedModel model, int server, const OptimizerOptions& optimizer,
        Spread spread = in_one_part, bool predicts = false, bool keeps_rows = false,
        std::span<std::byte> shared = {});
  Shard(const Shard&) = delete;

  std::size_t bytes() const noexcept { return weights_.size(); }

  /// Sets the weights (bytes()), and earlier() to the same. The optimizer's state stays.
  void set_weights(std::span<const std::byte> weights);
  std::span<const std::byte> weights() const;
  /// The memory that was given for the weights, or empty.
  std::span<const std::byte> shared() const noexcept { return shared_; }
  /// The weights that momentum will have made after `staleness` updates by other workers and, as in
  /// Nesterov's method, the worker's own one. Momentum m adds m times each update to the next:
  ///
  ///     weights + (m + m^2 + ... + m^(staleness + 1)) x the last update
  ///
  /// A gradient of these weights, applied then, is hardly late (DANA: Hakimi et al. 2019,
  /// arXiv:1907.11612). With a staleness of 0, or without momentum, the weights themselves. Valid
  /// until the next call of any method.
  std::span<const std::byte> predicted(std::int64_t staleness);
  /// The weights before the last update, empty unless the shard predicts. For copies.
  std::span<std::byte> earlier() noexcept { return earlier_; }

  /// Begins one update by a gradient of bytes() and `rows` of each table, times `scale`; both
  /// memories must stay until it is complete. Nothing changes if one holds an infinity or a NaN:
  /// then the result names the parameter or the row. `before`: the weights that the gradient is of.
  /// If given and lambda > 0, g + lambda g g (w - before) replaces the gradient g (after `scale`;
  /// DC-ASGD: Zheng et al. 2017, arXiv:1609.08326), but not that of rows, which workers seldom
  /// change at the same time. `finite`: the caller has checked `gradient`; saves a pass over it.
  std::optional<std::string> push(std::span<const std::byte> gradient, double rate, double scale,
                                  std::span<const std::byte> before = {}, double lambda = 0,
                                  std::span<const RowsView> rows = {}, Destination to = {},
                                  bool finite = false);
  /// The updates that have begun; advance() and finish() make them.
  Sweep& updates() noexcept { return updates_; }
  const Sweep& updates() const noexcept { return updates_; }

  /// Adds the workers' terms of a batch of `total` micro-batches. If their nodes cover it, the bits
  /// are those of the tree sum; else they are added in their order.
  void fold(std::span<const Terms> workers, std::uint32_t total);
  /// For the folded sum: the sum of squares of each chunk of 4,096 elements of parameters, and the
  /// first parameter that is not finite (the number of parameters if only a row is not).
  const std::vector<double>& chunk_squares() const noexcept { return squares_; }
  std::optional<std::uint32_t> first_not_finite() const;
  /// The rows of tables that this server has.
  RowShard& rows() noexcept { return rows_; }
  const RowShard& rows() const noexcept { return rows_; }
  /// Begins one update by the folded sum, times `scale`.
  void apply(double rate, double scale, Destination to = {});
  /// Begins to copy the weights as they are after the updates that have begun so far.
  void give_weights(std::span<std::byte> to);

  /// The folded sum, ServedModel::sum_bytes(). For copies.
  std::span<std::byte> sum() noexcept { return sum_; }
  std::span<const std::byte> sum() const noexcept { return sum_; }

  /// Its state aliases the shard.
  optim::Optimizer& optimizer() noexcept { return *optimizer_; }

 private:
  void begin_update(const std::byte* gradient, double rate, double scale, Destination to);
  struct Update;
  template <class T>
  void update_block(const Update& update, std::size_t slice, std::size_t begin, std::size_t end);

  const ServedModel model_;
  const std::vector<ServedModel::Slice>&slices_, &more_uses_;  // of this server
  const Spread spread_;
  const double momentum_;  // 0 unless the shard predicts
  std::span<std::byte> weights_, sum_, earlier_;
  std::vector<double> squares_;  // of the folded sum
  const std::span<std::byte> shared_;
  at::Tensor weights_memory_, sum_memory_, earlier_memory_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  RowShard rows_;
  Sweep updates_;
};

}  // namespace trireme::inline v0::ps
