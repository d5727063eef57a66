// The gradient at which a backward pass of this thread starts: 1, or more if losses are scaled so
// that fp16 gradients do not underflow (strategy/loss_scale.h). Code that starts a pass uses it,
// and so does code that adds another loss (models/experts.h).
#pragma once

#include "trireme/tensor/scoped_value.h"

namespace trireme::inline v0::tensor {

inline thread_local double innermost_loss_gradient = 1;

/// Sets the gradient for this thread's passes while it lives.
struct LossGradientScope : ScopedValue<double> {
  explicit LossGradientScope(double gradient) : ScopedValue(innermost_loss_gradient, gradient) {}
};

/// The innermost scope's gradient; 1 outside of any scope.
inline double loss_gradient() noexcept { return innermost_loss_gradient; }

}  // namespace trireme::inline v0::tensor
