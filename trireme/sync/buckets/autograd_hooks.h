// GradientHooks: takes each parameter's gradient out of autograd as soon as it is complete.
// before_backward() calls back when the backward pass reaches a block.
//
// After the hook `param.grad()` is undefined again, so the next backward() starts fresh. The
// callback runs on backward's thread and must not throw. The destructor removes the hooks.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

namespace trireme::inline v0::parallel {

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

/// Whether a GradientHooks that lives takes this leaf's gradients.
bool has_gradient_hook(const at::Tensor& parameter);

/// The number of this thread's next autograd node; all nodes made from here on have at least it.
std::uint64_t next_node();
/// Calls `callback` once, when backward reaches the work that made `values`: before the first of
/// their nodes from `first_node` on. Autograd runs nodes in the reverse order of creation, so
/// everything made later has run by then. Values that carry no gradient, or were made before, are
/// skipped. An exception from `callback` ends the backward pass.
void before_backward(const std::vector<at::Tensor>& values, std::uint64_t first_node,
                     std::function<void()> callback);

}  // namespace trireme::inline v0::parallel
