// Optimizers over owned slices. State (moments) is kept per slice in fp32 (fp64 for fp64 masters).
//
// apply() gives an element the same bits wherever parameters are cut: updates are element-wise, and
// sums over a whole parameter (LAMB's norms, Adafactor's row and column means) are added in
// (parameter, chunk) order (chunk_sum.h). Use from one thread at a time; ranks that share
// parameters call apply() together.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/kernel/optimizers/optimizers.h"
#include "trireme/optim/chunk_sum.h"
#include "trireme/optim/owned_slice.h"
#include "trireme/tensor/state.h"

namespace trireme::inline v0 {

namespace optim {

/// Name and shape of a parameter. Every rank knows those of all parameters of the model.
struct ParameterInfo {
  std::string name;
  std::vector<std::int64_t> shape;
};

/// Updates elements [begin, end) of slice `slice`; `gradient` is where the gradient of element `begin` is.
/// Any thread, for other elements at the same time.
using PartUpdate = std::function<void(std::size_t slice, std::size_t begin, std::size_t end,
                                      const void* gradient)>;

class Optimizer {
 public:
  virtual ~Optimizer() = default;
  /// "adamw", "sgd", ...: optimizer_names().
  virtual std::string_view name() const noexcept = 0;
  /// Allocates the state of these slices (zeros). `parameters[i]` is parameter i of the model,
  /// owned by this rank or not. `sums` completes the sums of parameters that several ranks share;
  /// null if no parameter is shared. Call it once, before the first apply().
  virtual void attach(std::span<const OwnedSlice> slices, std::span<const ParameterInfo> parameters,
                      std::shared_ptr<SharedSums> sums = nullptr) = 0;
  /// Before attach(): the state of slices on a device will be in the host's pinned memory.
  virtual void keep_state_on_host() = 0;
  /// The bytes of that state.
  virtual std::size_t bytes_on_host() const noexcept = 0;
  /// Counts one update that the caller makes, by calls that cover each element of each slice once. For
  /// slices on the host that have no compute copy. Empty if the update is not one rule for every element.
  virtual PartUpdate begin_parts(double learning_rate, double scale) = 0;
  /// One update of every slice, with gradient x `scale` (1 / count and the clipping factor).
  virtual void apply(double learning_rate, double scale) = 0;
  /// Between steps the slices may have weights of which the optimizer wants the next gradient, not the
  /// present ones, or weights that a device is still writing to the host. This puts the present ones
  /// there, until the next apply().
  virtual void settle() {}
  virtual double base_learning_rate() const noexcept = 0;
  /// Per parameter "NAME.exp_avg" ..., cut as the slices are. Adafactor's row and column means are
  /// whole and equal on every rank that owns a slice.
  virtual std::vector<NamedShard> state() = 0;
  virtual std::int64_t step_count() const noexcept = 0;
  virtual void set_step_count(std::int64_t count) = 0;
};

/// Throws ConfigError for numbers with which weights would become NaN, or the update would be
/// another one, such as a beta of 1. Torch's optimizers refuse most of them, too.
void check_numbers(const OptimizerOptions& options);
/// Throws what check_numbers() throws.
std::unique_ptr<Optimizer> make_optimizer(const OptimizerOptions& options);
std::string_view name_of(const OptimizerOptions& options);
/// The keys from which optimizer_of(name_of(options), ...) makes `options`.
OptimizerKeys keys_of(const OptimizerOptions& options);
double learning_rate_of(const OptimizerOptions& options);
/// The share of an update that is there again in the next one: beta1, or SGD's momentum; else 0.
double momentum_of(const OptimizerOptions& options);
/// The names of all optimizers, the default first.
std::vector<std::string> optimizer_names();
/// The optimizer of that name with its numbers of a configuration. Throws what check_numbers()
/// throws.
OptimizerOptions optimizer_of(std::string_view name, const OptimizerKeys& keys);
/// True if its step needs sums over whole parameters, as LAMB's norms.
bool sums_over_parameters(std::string_view name);
/// Numbers of state per parameter element: 2 for AdamW, LAMB and FTRL, 1 for Lion, Adagrad and SGD with
/// momentum;
/// 0 for Adafactor, whose R + C numbers for a matrix [R, C] are negligible.
int moments_per_element(const OptimizerOptions& options);

/// '*' matches any number of characters, '?' exactly one, everything else itself.
bool matches(std::string_view pattern, std::string_view name);

}  // namespace optim
}  // namespace trireme::inline v0
