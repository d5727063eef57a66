// Pieces for a training loop with a torch::optim optimizer: a learning-rate schedule, and clipping.
//
// Usable alone (no Job). Not thread safe.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "trireme/optim/schedule.h"

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

}  // namespace trireme::inline v0
