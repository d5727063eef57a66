// Learning-rate schedule and clipping factor: pure functions of the step, equal on every rank.
#pragma once

#include <cstdint>

namespace trireme {
inline namespace v0 {
namespace optim {

/// Linear warm-up, then cosine (Loshchilov & Hutter 2017, arXiv:1608.03983) from `peak` down to
/// `final_rate` at step `steps`, as nanoGPT; constant `final_rate` after it.
struct Schedule {
  double peak = 1e-3;
  double final_rate = 1e-4;
  std::int64_t warmup = 0;  // steps
  std::int64_t steps = 0;   // where the cosine ends; 0: constant `peak` after the warm-up
};
/// The rate of step `step` (0 is the first): peak (step + 1) / (warmup + 1) while step < warmup.
double learning_rate(const Schedule& schedule, std::int64_t step);

/// What the gradients are multiplied by so that their norm is at most `limit`: as
/// torch.nn.utils.clip_grad_norm_, min(1, limit / (norm + 1e-6)); 1 where limit is 0 (off).
double clipping_factor(double norm, double limit);

}  // namespace optim
}  // namespace v0
}  // namespace trireme
