// GradientHooks: takes each parameter's gradient out of autograd the moment it is complete.
//
// After the hook `param.grad()` is undefined again, so the next backward() starts fresh. The
// callback runs on the thread that runs backward and must not throw. Removes itself when destroyed.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

namespace trireme {
inline namespace v0 {
namespace parallel {

class GradientHooks {
 public:
  /// `callback(i, gradient)` for parameters[i], leaves that require grad.
  using Callback = std::function<void(std::size_t index, at::Tensor gradient)>;
  GradientHooks(std::vector<at::Tensor> parameters, Callback callback);
  ~GradientHooks();
  GradientHooks(const GradientHooks&) = delete;

 private:
  std::vector<at::Tensor> parameters_;
};

}  // namespace parallel
}  // namespace v0
}  // namespace trireme
