// Optimizers over owned slices. State (moments) is kept per slice in fp32 (fp64 for fp64 masters).
//
// apply() is element-wise: an element's result does not depend on its position or on the cut.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "trireme/optim/owned_slice.h"
#include "trireme/tensor/state.h"

namespace trireme {
inline namespace v0 {

/// Decoupled weight decay (Loshchilov & Hutter 2019, arXiv:1711.05101), as torch.optim.AdamW.
struct AdamW {
  double learning_rate = 1e-3;
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8, weight_decay = 0.01;
};
/// As torch.optim.SGD with dampening 0.
struct Sgd {
  double learning_rate = 1e-2;
  double momentum = 0, weight_decay = 0;
  bool nesterov = false;
};

namespace optim {

class Optimizer {
 public:
  virtual ~Optimizer() = default;
  /// Allocates the state of these slices (zeros). Once, before the first apply().
  virtual void attach(std::span<const OwnedSlice> slices) = 0;
  /// One update of every slice: gradient x `scale` (1/count, and the clipping factor) is used.
  virtual void apply(double learning_rate, double scale) = 0;
  virtual double base_learning_rate() const noexcept = 0;
  /// Per parameter "NAME.exp_avg" …; shards cut as the slices are. `shapes[i]` of parameter i.
  virtual std::vector<NamedShard> state(std::span<const std::vector<std::int64_t>> shapes) = 0;
  virtual std::int64_t step_count() const noexcept = 0;
  virtual void set_step_count(std::int64_t count) = 0;
  /// Bytes of state per parameter element (8 for AdamW in fp32).
  virtual int state_bytes_per_element() const noexcept = 0;
};

std::unique_ptr<Optimizer> make_optimizer(const AdamW& options);
std::unique_ptr<Optimizer> make_optimizer(const Sgd& options);

/// Fixed-order pieces of the global norm: fp64 sum of squares of every 4,096-element chunk of the
/// slice's gradient, ascending (kernel/norm_chunks.h). parallel/ gathers and folds them.
void chunk_squares(const OwnedSlice& slice, std::vector<double>& out);

}  // namespace optim
}  // namespace v0
}  // namespace trireme
