// The gradient at which a backward pass of this thread starts: 1, or more if losses are scaled so
// that fp16 gradients do not underflow (strategy/loss_scale.h). Code that starts a pass uses it,
// and so does code that adds a loss of its own (models/experts.h).
#pragma once

namespace trireme::inline v0::tensor {

/// Sets the gradient for this thread's passes while it lives. Scopes nest.
class LossGradientScope {
 public:
  explicit LossGradientScope(double gradient);
  ~LossGradientScope();
  LossGradientScope(const LossGradientScope&) = delete;

 private:
  double outer_;
};

/// The innermost scope's gradient; 1 outside of any scope.
double loss_gradient() noexcept;

}  // namespace trireme::inline v0::tensor
