#include "trireme/tensor/functions/loss_gradient.h"

#include <utility>

namespace trireme::inline v0::tensor {
namespace {
thread_local double current_gradient = 1;
}  // namespace

LossGradientScope::LossGradientScope(double gradient)
    : outer_(std::exchange(current_gradient, gradient)) {}
LossGradientScope::~LossGradientScope() { current_gradient = outer_; }

double loss_gradient() noexcept { return current_gradient; }

}  // namespace trireme::inline v0::tensor
