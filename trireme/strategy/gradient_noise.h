// GradientNoise: the simple noise scale of McCandlish et al. 2018 (arXiv:1812.06162, equation 2.9
// and appendix A.1), measured while training. It is about the batch size, in items, beyond which
// larger batches save few steps.
//
// The mean gradient g_i over the n_i items of a micro-batch, and the mean gradient g over the N
// items of the batch, satisfy E|g_i|^2 = |G|^2 + S / n_i and E|g|^2 = |G|^2 + S / N. Averages over
// micro-batches give |G|^2 and S; the scale is the ratio S / |G|^2 of their running means. A tied
// parameter's gradient is summed over its uses. Sums are trees over micro-batches in fp64: the same
// bits on any number of ranks and lanes. Squares stay on the device until all micro-batches have
// run. Not thread safe: hooks and step() must take turns.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trireme/sync/buckets/gradient_feed.h"
#include "trireme/sync/scalar_tree.h"

namespace trireme::inline v0::parallel {

class GradientNoise final : public GradientObserver {
 public:
  /// The parameter of each leaf; a tied parameter has several leaves.
  explicit GradientNoise(std::vector<std::uint32_t> parameter_of_leaf);

  void begin(std::uint32_t total, const kernel::Assignment& assignment, int rank);
  /// The gradients that follow are to be multiplied by `weight`, a power of two.
  void begin_micro(double weight) override;
  /// `gradient`: of the loss summed over the micro-batch.
  void gradient(std::size_t leaf, const at::Tensor& gradient) override;
  void end_micro(std::int64_t count) override;
  /// Reads the squares: waits for the device. This object must not move until the Work is done.
  Work reduce(comm::Communicator& world, const ReduceTerms& how);
  /// The step was applied. `gradient_norm`: |g| over `count` items, before clipping.
  void finish(double gradient_norm, std::int64_t count);

  /// In items; none while it is unknown (no step yet, or the noise hides the gradient).
  std::optional<double> scale() const;

  struct State {
    std::int64_t steps = 0;
    double signal = 0, noise = 0;  // running means of |G|^2 and S
  };
  State state;

 private:
  void read_squares();

  std::vector<std::uint32_t> parameter_of_leaf_;
  std::vector<int> uses_;  // per parameter
  double weight_ = 1;
  std::vector<at::Tensor> squares_;       // per parameter, of this micro-batch; undefined: 0
  std::vector<at::Tensor> tied_;          // per leaf: gradients that wait for the other uses
  std::vector<std::size_t> tied_leaves_;  // ascending
  // Micro-batches whose squares the host has not read yet.
  struct Micro {
    std::int64_t count = 0;
    double weight = 1;
    std::size_t squares = 0;  // how many of unread_ are its
  };
  std::vector<Micro> micro_;
  std::vector<at::Tensor> unread_;
  // Summed over micro-batches with items: |g_i|^2, 1 / n_i, 1.
  std::array<std::optional<ScalarTree>, 3> sums_;
};

}  // namespace trireme::inline v0::parallel
