#include "trireme/tensor/functions/loss_gradient.h"

namespace trireme::inline v0::tensor {
namespace {
thread_local double current_gradient = 1;
}  // namespace

LossGradientScope::LossGradientScope(double gradient) : ScopedValue(current_gradient, gradient) {}

double loss_gradient() noexcept { return current_gradient; }

}  // namespace trireme::inline v0::tensor
