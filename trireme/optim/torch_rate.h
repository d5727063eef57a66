// Pieces for one's own loop with a torch::optim optimizer: a learning-rate schedule, and clipping.
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

namespace trireme {
inline namespace v0 {

/// Sets the rate of every parameter group to its own rate x learning_rate(schedule, step) /
/// schedule.peak: step 0's at once, the next one's at each step().
class ScheduledRate {
 public:
  /// The optimizer outlives this. Throws ConfigError where the schedule's numbers do not fit.
  ScheduledRate(torch::optim::Optimizer& optimizer, const optim::Schedule& schedule);
  /// After optimizer.step().
  void step() { set(step_ + 1); }
  /// As after `step` steps: for going on from a checkpoint.
  void set(std::int64_t step);
  std::int64_t steps() const noexcept { return step_; }
  /// Of the first group.
  double rate() const;

 private:
  torch::optim::Optimizer& optimizer_;
  optim::Schedule schedule_;
  std::vector<double> own_;  // rate of each group when this was made
  std::int64_t step_ = 0;
};

/// Scales the gradients so that their common norm is at most `limit`, as
/// torch.nn.utils.clip_grad_norm_; returns the norm before. Sums in fp64, in one order whatever the
/// number of threads. Parameters without a gradient are left out. Gradients that are not finite
/// stay as they are; the norm says so.
double clip_grad_norm(const std::vector<at::Tensor>& parameters, double limit);

}  // namespace v0
}  // namespace trireme
