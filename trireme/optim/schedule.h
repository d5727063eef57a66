// Learning-rate schedules and the clipping factor: pure functions of the step, equal on every rank.
//
// Every schedule starts with a linear warm-up: the rate of step `step` (0 is the first) of `warmup`
// is peak (step + 1) / (warmup + 1). After that it is a function of done = (step - warmup) / (steps
// - warmup), from 0 to 1. From `steps` on the rate stays constant, except that Step goes on.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::inline v0::optim {

enum class Decay : std::uint8_t {
  Constant,  // peak
  Linear,    // a line from peak down to final_rate
  /// final_rate + (peak - final_rate) (1 + cos(pi done)) / 2 (Loshchilov & Hutter 2017,
  /// arXiv:1608.03983).
  Cosine,
  /// Warm-up, stable, decay (Hu et al. 2024, arXiv:2404.06395): peak, then a line down to
  /// final_rate in the last `decay_steps`.
  Stable,
  Polynomial,  // final_rate + (peak - final_rate) (1 - done)^power
  /// Smith & Topin 2018, arXiv:1708.07120, as torch's OneCycleLR with cosines: up from peak /
  /// start_divisor to peak over the first `rise` of `steps`, then down to final_rate. It includes
  /// the warm-up: `warmup` must be 0.
  OneCycle,
  Step,  // peak, times `factor` every `every` steps after the warm-up
};
/// "constant", "linear", "cosine", "wsd", "polynomial", "one_cycle", "step".
std::string_view name_of(Decay decay) noexcept;
/// All names, in the order above.
std::vector<std::string> decay_names();
/// Throws ConfigError for other names.
Decay decay_of(std::string_view name);

struct Schedule {
  double peak = 1e-3;
  double final_rate = 1e-4;
  std::int64_t warmup = 0;  // steps
  std::int64_t steps = 0;   // where the decay ends; 0: constant `peak` after the warm-up
  Decay decay = Decay::Cosine;
  std::int64_t decay_steps = 0;  // Stable
  double power = 1;              // Polynomial
  double start_divisor = 25;     // OneCycle
  double rise = 0.3;             // OneCycle: share of the steps
  std::int64_t every = 0;        // Step
  double factor = 0.1;           // Step
};
/// Throws ConfigError if a number is negative or not finite, or if they contradict one another.
void check(const Schedule& schedule);
/// The rate of step `step` (0 is the first).
double learning_rate(const Schedule& schedule, std::int64_t step);

/// The linear-scaling rule (Goyal et al. 2017, arXiv:1706.02677): `rate`, which was found for a
/// batch of `base_batch`, times batch / base_batch; `rate` itself if base_batch is 0.
double scaled_rate(double rate, std::int64_t batch, std::int64_t base_batch);

/// The factor that limits the gradients' norm to `limit`: min(1, limit / (norm + 1e-6)), as
/// torch.nn.utils.clip_grad_norm_; 1 if limit is 0 (off).
double clipping_factor(double norm, double limit);

}  // namespace trireme::inline v0::optim
