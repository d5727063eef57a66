// What autograd saves for backward, handed to somebody else to keep: the C++ side of Python's
// torch.autograd.graph.saved_tensors_hooks.
//
// LibTorch asks its engine for hooks whenever a node saves a tensor; a program of C++ alone has
// none. The first scope installs an engine that answers with this thread's keeper, where a scope
// lives, and is LibTorch's own in everything else. Scopes nest; they are a thread's own.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>

namespace trireme {
inline namespace v0 {
namespace memory {

class TensorKeeper {
 public:
  virtual ~TensorKeeper() = default;
  /// Gives the tensor back: same values, sizes and strides. Called on a thread that runs backward,
  /// as often as a node reads what it saved; destroyed when the node is done.
  using Return = std::function<at::Tensor()>;
  /// `tensor` is not held by the graph from here on. Empty: the graph keeps it after all. What it
  /// throws, the operation throws.
  virtual Return keep(const at::Tensor& tensor) = 0;
};

/// While it lives, what this thread's operations save goes to `keeper`, which outlives it.
class SavedTensorsScope {
 public:
  explicit SavedTensorsScope(TensorKeeper& keeper);
  ~SavedTensorsScope();
  SavedTensorsScope(const SavedTensorsScope&) = delete;

 private:
  TensorKeeper* outer_;
};

}  // namespace memory
}  // namespace v0
}  // namespace trireme
