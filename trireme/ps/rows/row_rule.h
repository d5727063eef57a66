// RowRule: an optimizer's step on rows of a table, by the kernels that dense parameters use
// (kernel/optimizers). A row is its weights and, behind them, each of its state arrays.
//
// Steps are lazy: only rows with a gradient change, and each has its own count of updates, from which
// AdamW's bias correction and first steps follow. Moments and weights of the other rows do not decay
// meanwhile. Not thread safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "trireme/kernel/optimizers/optimizers.h"

namespace trireme::inline v0::ps {

class RowRule {
 public:
  virtual ~RowRule() = default;
  /// "exp_avg", ...: the arrays of state of a row.
  virtual const std::vector<std::string>& state() const noexcept = 0;
  /// Before a batch of updates: the learning rate, and the factor on gradients.
  virtual void begin(double rate, double scale) = 0;
  /// One update of a row, its `count`-th.
  virtual void update(float* row, const float* gradient, std::uint32_t count) = 0;
};

/// For rows of `width` of the table `name`, which parameter groups match as "NAME.rows". ConfigError for
/// an optimizer whose steps need sums over whole parameters.
std::unique_ptr<RowRule> make_row_rule(const OptimizerOptions& options, const std::string& name,
                                       std::size_t width);

}  // namespace trireme::inline v0::ps
