// GradientHooks: takes each parameter's gradient out of autograd the moment it is complete; and
// before_backward(), which is called when autograd comes back to a block.
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

/// The number of the next autograd node of this thread: nodes made from here on have at least it.
std::uint64_t next_node();
/// `callback` runs once, before the first of the nodes from `first_node` on that made one of
/// `values`: when backward comes to the work that made them. Autograd runs nodes in the reverse
/// order of their making, so everything that was made later has run by then. Values that carry no
/// gradient, or were made before, are passed over. An exception of it ends the backward pass.
void before_backward(const std::vector<at::Tensor>& values, std::uint64_t first_node,
                     std::function<void()> callback);

}  // namespace parallel
}  // namespace v0
}  // namespace trireme
