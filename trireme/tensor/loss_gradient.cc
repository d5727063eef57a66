#include "trireme/tensor/loss_gradient.h"

#include <utility>

namespace trireme {
inline namespace v0 {
namespace tensor {
namespace {
thread_local double current = 1;
}  // namespace

LossGradientScope::LossGradientScope(double gradient) : outer_(std::exchange(current, gradient)) {}
LossGradientScope::~LossGradientScope() { current = outer_; }

double loss_gradient() noexcept { return current; }

}  // namespace tensor
}  // namespace v0
}  // namespace trireme
