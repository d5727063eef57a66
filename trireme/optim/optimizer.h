// Optimizers over owned slices. State (moments) is kept per slice in fp32 (fp64 for fp64 masters).
//
// apply() gives an element the same bits wherever parameters are cut: updates are element-wise, and
// sums over a whole parameter (LAMB's norms, Adafactor's row and column means) are added in
// (parameter, chunk) order (chunk_sum.h). Use from one thread at a time; ranks that share
// parameters call apply() together.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "trireme/optim/chunk_sum.h"
#include "trireme/optim/owned_slice.h"
#include "trireme/tensor/state.h"

namespace trireme::inline v0 {

/// Own numbers for the parameters whose name matches `match` ('*': any characters, '?': one). The
/// first matching group counts. A pattern that matches no parameter is a ConfigError.
struct ParameterGroup {
  std::string match;
  std::optional<double> weight_decay;  // none: the optimizer's, for matrices only
  double rate_factor = 1;              // factor on the learning rate
};

/// Decoupled weight decay (Loshchilov & Hutter 2019, arXiv:1711.05101), as torch.optim.AdamW.
struct AdamW {
  double learning_rate = 1e-3;
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8, weight_decay = 0.01;
  std::vector<ParameterGroup> groups = {};
};
/// As torch.optim.SGD.
struct Sgd {
  double learning_rate = 1e-2;
  double momentum = 0, weight_decay = 0;
  bool nesterov = false;
  double dampening = 0;
  std::vector<ParameterGroup> groups = {};
};
/// Layer-wise rates for large batches (You et al. 2020, arXiv:1904.00962, algorithm 2, phi = id). A
/// parameter moves by rate x |w| / |u| along AdamW's direction u (decay included); if either norm
/// is 0, by the rate itself.
struct Lamb {
  double learning_rate = 1e-3;
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-6, weight_decay = 0.01;
  std::vector<ParameterGroup> groups = {};
};
/// Factored mean squares (Shazeer & Stern 2018, arXiv:1804.04235), as torch.optim.Adafactor: a
/// matrix [R, C] has R + C numbers of state. The learning rate bounds the relative step.
struct Adafactor {
  double learning_rate = 1e-2;
  double beta2_decay = -0.8;     // weight of the new mean square at step t: t^beta2_decay
  double epsilon = 0;            // smallest root mean square of a row; 0: the type's epsilon
  double smallest_scale = 1e-3;  // smallest size of a parameter that its step is scaled by
  double clip = 1.0;             // largest root mean square of an update, before the rate
  double weight_decay = 0;
  std::vector<ParameterGroup> groups = {};
};
/// The sign of an interpolated momentum (Chen et al. 2023, arXiv:2302.06675, algorithm 2).
struct Lion {
  double learning_rate = 1e-4;
  double beta1 = 0.9, beta2 = 0.99, weight_decay = 0;
  std::vector<ParameterGroup> groups = {};
};
using OptimizerOptions = std::variant<AdamW, Sgd, Lamb, Adafactor, Lion>;

namespace optim {

/// Name and shape of a parameter. Every rank knows those of all parameters of the model.
struct ParameterInfo {
  std::string name;
  std::vector<std::int64_t> shape;
};

class Optimizer {
 public:
  virtual ~Optimizer() = default;
  /// "adamw", "sgd", "lamb", "adafactor", "lion".
  virtual std::string_view name() const noexcept = 0;
  /// Allocates the state of these slices (zeros). `parameters[i]` is parameter i of the model,
  /// owned by this rank or not. `sums` completes the sums of parameters that several ranks share;
  /// null if no parameter is shared. Call it once, before the first apply().
  virtual void attach(std::span<const OwnedSlice> slices, std::span<const ParameterInfo> parameters,
                      std::shared_ptr<SharedSums> sums = nullptr) = 0;
  /// One update of every slice, with gradient x `scale` (1 / count and the clipping factor).
  virtual void apply(double learning_rate, double scale) = 0;
  virtual double base_learning_rate() const noexcept = 0;
  /// Per parameter "NAME.exp_avg" ..., cut as the slices are. Adafactor's row and column means are
  /// whole and equal on every rank that owns a slice.
  virtual std::vector<NamedShard> state() = 0;
  virtual std::int64_t step_count() const noexcept = 0;
  virtual void set_step_count(std::int64_t count) = 0;
};

std::unique_ptr<Optimizer> make_optimizer(const OptimizerOptions& options);
double learning_rate_of(const OptimizerOptions& options);
/// Numbers of state per parameter element: 2 for AdamW and LAMB, 1 for Lion and SGD with momentum;
/// 0 for Adafactor, whose R + C numbers for a matrix [R, C] are negligible.
int moments_per_element(const OptimizerOptions& options);

/// Pieces of the global norm in a fixed order: appends the fp64 sum of squares of every
/// 4,096-element chunk of the slice's gradient, ascending. parallel/ gathers and adds them.
void chunk_squares(const OwnedSlice& slice, std::vector<double>& out);

/// '*' matches any number of characters, '?' exactly one, everything else itself.
bool matches(std::string_view pattern, std::string_view name);

}  // namespace optim
}  // namespace trireme::inline v0
