// Learning-rate schedules and the clipping factor: pure functions of the step, equal on every rank.
//
// Every schedule starts with a linear warm-up: step `step` (0 is the first) of `warmup` has
// peak (step + 1) / (warmup + 1). What follows is a function of done = (step - warmup) /
// (steps - warmup), from 0 to 1; at `steps` and after it the rate is the last one.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace trireme {
inline namespace v0 {
namespace optim {

enum class Decay : std::uint8_t {
  Constant,  // peak
  Linear,    // peak down to final_rate, in a line
  /// final_rate + (peak - final_rate) (1 + cos(pi done)) / 2 (Loshchilov & Hutter 2017,
  /// arXiv:1608.03983).
  Cosine,
  /// Warm-up, stable, decay (Hu et al. 2024, arXiv:2404.06395): peak, and in the last
  /// `decay_steps` a line down to final_rate.
  Stable,
  Polynomial,  // final_rate + (peak - final_rate) (1 - done)^power
  /// Smith & Topin 2018, arXiv:1708.07120, as torch's OneCycleLR with cosines: over the first
  /// `rise` of `steps` from peak / start_divisor up to peak, then down to final_rate. The warm-up
  /// is part of it: `warmup` must be 0.
  OneCycle,
  Step,  // peak times `factor` for every `every` steps after the warm-up
};
/// "constant", "linear", "cosine", "wsd", "polynomial", "one_cycle", "step".
std::string_view name_of(Decay decay) noexcept;
/// All names, in the order above.
std::vector<std::string> decay_names();
/// Throws ConfigError for another name.
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
/// Throws ConfigError where the numbers do not fit one another.
void check(const Schedule& schedule);
/// The rate of step `step` (0 is the first).
double learning_rate(const Schedule& schedule, std::int64_t step);

/// The linear-scaling rule (Goyal et al. 2017, arXiv:1706.02677): the rate found at a batch of
/// `base_batch`, times batch / base_batch; `rate` where base_batch is 0.
double scaled_rate(double rate, std::int64_t batch, std::int64_t base_batch);

/// What the gradients are multiplied by so that their norm is at most `limit`: as
/// torch.nn.utils.clip_grad_norm_, min(1, limit / (norm + 1e-6)); 1 where limit is 0 (off).
double clipping_factor(double norm, double limit);

}  // namespace optim
}  // namespace v0
}  // namespace trireme
