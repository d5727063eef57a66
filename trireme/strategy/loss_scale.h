// LossScale: the factor on losses before their backward pass, so that gradients do not underflow in
// fp16, whose smallest number is 2^-24 (Micikevicius et al. 2018, arXiv:1710.03740, section 3.2).
// Gradients are divided by it in fp32 before any other use.
//
// A dynamic scale follows torch.amp.GradScaler. It halves when a gradient holds an infinity or a
// NaN on any rank (no rank applies that step), and doubles after `window` steps in a row without
// one. It stays between 1 and 2^32. At 1 such a gradient is an error, as in any other precision.
//
// The scale is a power of two: neither the product nor the quotient rounds, so it changes no bit of
// a gradient that fp16 can hold, and it does not matter when a rank divides. Every rank sees the
// same verdicts, so all have the same scale without communication. Not thread safe.
#pragma once

#include <cstdint>
#include <string_view>

#include "trireme/sync/options.h"

namespace trireme::inline v0::parallel {

class LossScale {
 public:
  /// ConfigError if the scale is not a power of two from 1 to 2^32, or the window is below 1.
  explicit LossScale(const LossScaleOptions& options);

  /// The factor on a micro-batch's mean loss, up to a factor below 2.
  double scale() const noexcept { return state.scale; }
  /// The gradient with which backward starts at the loss summed over `count` items: the scale
  /// divided by the smallest power of two that is at least `count`. The division makes up for the
  /// gradient of a sum being `count` times that of a mean.
  double loss_gradient(std::int64_t count) const noexcept;
  /// Whether a non-finite gradient counts as an overflow: the step is skipped, the scale halves.
  bool backs_off() const noexcept { return options_.dynamic && state.scale > 1; }
  /// A step was skipped for such a gradient. Call only if backs_off().
  void overflowed() noexcept;
  /// A step's gradients were finite.
  void passed() noexcept;

  struct State {
    double scale = 65536;
    std::int64_t passed = 0;     // steps since the scale last changed
    std::int64_t overflows = 0;  // steps skipped
  };
  State state;
  /// Restores a saved state. A fixed scale keeps the value of the options.
  void restore(const State& saved) noexcept;

 private:
  LossScaleOptions options_;
};

/// Parses "dynamic", which starts at `initial`, or the number of a fixed scale. ConfigError for any
/// other text, and for a scale that LossScale refuses.
LossScaleOptions parse_loss_scale(std::string_view text, double initial, std::int64_t window);

}  // namespace trireme::inline v0::parallel
