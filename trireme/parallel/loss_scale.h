// LossScale: by how much losses are multiplied before their backward pass, so that gradients do not
// vanish in fp16, whose smallest number is 2^-24 (Micikevicius et al. 2018, arXiv:1710.03740,
// section 3.2); gradients are divided by it again in fp32, before anything is done with them.
//
// A dynamic one moves as torch.amp.GradScaler's: it halves when a gradient holds an infinity or a
// NaN on any rank, a step that no rank applies, and doubles after `window` steps in a row without.
// It ends at 1, where such a gradient is a fault as in any other precision, and at 2^32.
//
// Powers of two alone: neither the product nor the quotient rounds, so the scale changes no bit of
// a gradient that fp16 holds, and nothing depends on who divides when. Every rank sees the same
// verdicts, so all have the same scale without asking. Plain arithmetic; not thread safe.
#pragma once

#include <cstdint>
#include <string_view>

namespace trireme {
inline namespace v0 {

struct LossScaleOptions {
  bool dynamic = true;         // false: it stays as it is, and an overflow is a fault
  double initial = 65536;      // a power of two from 1 to 2^32
  std::int64_t window = 2000;  // steps without an overflow after which it doubles
};

namespace parallel {

class LossScale {
 public:
  /// ConfigError where the scale is no such power of two, or the window is below 1.
  explicit LossScale(const LossScaleOptions& options);

  /// What the mean loss of a micro-batch is multiplied by, but for a factor below 2.
  double scale() const noexcept { return state.scale; }
  /// With what backward begins at the summed loss of `count` items: the scale over the power of two
  /// at or above count. A sum's gradient is count times a mean's, and would need a scale as much
  /// smaller.
  double loss_gradient(std::int64_t count) const noexcept;
  /// Whether a gradient that is not finite is laid to the scale's charge.
  bool backs_off() const noexcept { return options_.dynamic && state.scale > 1; }
  /// A step that was left out for such a gradient; only where backs_off().
  void overflowed() noexcept;
  /// A step whose gradients are finite.
  void passed() noexcept;

  struct State {
    double scale = 65536;
    std::int64_t passed = 0;     // steps since it last moved
    std::int64_t overflows = 0;  // steps left out
  };
  State state;
  /// As saved; a scale that does not move stays the one of the options.
  void restore(const State& saved) noexcept;

 private:
  LossScaleOptions options_;
};

/// "dynamic", which begins with `initial`, or a number that stays. ConfigError as LossScale's, and
/// for another word.
LossScaleOptions parse_loss_scale(std::string_view text, double initial, std::int64_t window);

}  // namespace parallel
}  // namespace v0
}  // namespace trireme
