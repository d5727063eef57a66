// Pieces for a training loop of one's own with a torch::optim optimizer (examples/pieces): a
// learning-rate schedule, clipping, loss scaling for fp16, and an average of the weights.
//
// Each is usable alone, without a Job and on any device. Not thread safe.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <vector>

#include "trireme/optim/schedule.h"

namespace torch::nn {
class Module;
}
namespace torch::optim {
class Optimizer;
}

namespace trireme::inline v0 {

/// Sets the rate of every parameter group to the group's own rate x learning_rate(schedule, step) /
/// schedule.peak: for step 0 at once, and for the next step at each step().
class ScheduledRate {
 public:
  /// The optimizer must outlive this. Throws ConfigError if the schedule's numbers do not fit.
  ScheduledRate(torch::optim::Optimizer& optimizer, const optim::Schedule& schedule);
  /// Call it after optimizer.step().
  void step() { set(step_ + 1); }
  /// Sets the rate as after `step` steps, to continue from a checkpoint.
  void set(std::int64_t step);
  std::int64_t steps() const noexcept { return step_; }
  /// The rate of the first group.
  double rate() const;

 private:
  torch::optim::Optimizer& optimizer_;
  optim::Schedule schedule_;
  std::vector<double> own_;  // rate of each group when this was made
  std::int64_t step_ = 0;
};

/// Scales the gradients so that their common norm is at most `limit`, as
/// torch.nn.utils.clip_grad_norm_, and returns the norm before. Sums in fp64, in the same order for
/// any number of threads. Parameters without a gradient are skipped. If the norm is not finite, it
/// is returned and the gradients stay as they are.
double clip_grad_norm(const std::vector<at::Tensor>& parameters, double limit);

/// GradScaler: loss scaling for fp16, as torch.amp.GradScaler; LibTorch has none.
///
///     scaler.scale(loss).backward();  scaler.step(adam);  scaler.update();  adam.zero_grad();
struct GradScalerOptions {
  double initial_scale = 65536;
  double growth = 2, backoff = 0.5;
  std::int64_t growth_interval = 2000;  // steps without an overflow until the scale grows
};

class GradScaler {
 public:
  explicit GradScaler(GradScalerOptions options = {});
  at::Tensor scale(const at::Tensor& loss) const;
  /// Divides the optimizer's gradients by the scale. Call it before clipping, once per step; step()
  /// does it otherwise. Throws ConfigError when called twice for an optimizer before update().
  void unscale(torch::optim::Optimizer& optimizer);
  /// Calls optimizer.step() unless one of its gradients holds an infinity or a NaN. Returns whether
  /// it did. ConfigError, as from torch's, for an optimizer without gradients, and when called twice
  /// for one before update().
  bool step(torch::optim::Optimizer& optimizer);
  /// After step() of every optimizer: backs off if one of them had an overflow, grows after
  /// growth_interval steps without one. Without a step() it only backs off, if unscale() found an overflow.
  void update();

  double current_scale() const noexcept { return scale_; }
  std::int64_t skipped() const noexcept { return skipped_; }

 private:
  GradScalerOptions options_;
  double scale_;
  std::int64_t good_ = 0, skipped_ = 0;
  // Since the last update().
  struct Unscaled {
    bool any = false, overflow = false, stepped = false;  // any: it has a gradient
  };
  std::map<const torch::optim::Optimizer*, Unscaled> unscaled_;
};

/// Ema: an exponential moving average of a module's weights, for evaluation and saving. Holds one
/// averaged copy of the parameters and a plain copy of the buffers (running statistics are averages
/// already).
class Ema {
 public:
  /// Starts with the module's weights. `decay` in [0, 1), else ConfigError. As torch's
  /// AveragedModel with get_ema_multi_avg_fn(decay), except that torch starts with the weights of
  /// the first update.
  Ema(const torch::nn::Module& module, double decay);
  /// average += (1 - decay) (weight - average); buffers are copied. Call it after each optimizer
  /// step.
  void update();
  std::int64_t updates() const noexcept { return updates_; }

  /// While it lives, the module has the averaged weights, for evaluation or save_weights().
  /// Afterwards its own weights are back, bit for bit. update() meanwhile is a CheckFailure.
  class Swap {
   public:
    explicit Swap(Ema& ema);
    ~Swap();
    Swap(const Swap&) = delete;
    Swap& operator=(const Swap&) = delete;

   private:
    Ema& ema_;
  };

 private:
  void swap();
  struct Pair {
    at::Tensor weight, average;  // weight: the module's own
    bool averaged = true;        // else copied: a buffer, or integers
    /// Moves the average to the weight's device and type, which module->to() may have changed.
    void follow();
  };
  double decay_;
  std::int64_t updates_ = 0;
  bool swapped_ = false;
  std::vector<Pair> pairs_;
};

}  // namespace trireme::inline v0
