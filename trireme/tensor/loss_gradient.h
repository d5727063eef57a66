// With what gradient a backward pass of this thread begins at a loss: 1, or more where losses are
// scaled so that gradients in fp16 do not vanish (parallel/loss_scale.h). Whoever starts a pass
// begins with it; what joins a loss of its own on the way (models/experts.h) does so with the same.
#pragma once

namespace trireme {
inline namespace v0 {
namespace tensor {

/// Of this thread, in which its passes run; nests.
class LossGradientScope {
 public:
  explicit LossGradientScope(double gradient);
  ~LossGradientScope();
  LossGradientScope(const LossGradientScope&) = delete;

 private:
  double outer_;
};

/// Of the innermost scope; 1 outside of any.
double loss_gradient() noexcept;

}  // namespace tensor
}  // namespace v0
}  // namespace trireme
