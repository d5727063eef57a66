// Hands the tensors that autograd saves for backward to a TensorKeeper: for C++, what
// torch.autograd.graph.saved_tensors_hooks is in Python.
//
// LibTorch asks its engine for hooks whenever a node saves a tensor; without Python there are none.
// The first scope installs an engine that returns hooks for the keeper of this thread's innermost
// scope, and otherwise behaves as LibTorch's own. Scopes nest and hold for one thread.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>

namespace trireme::inline v0::memory {

class TensorKeeper {
 public:
  virtual ~TensorKeeper() = default;
  /// Returns the tensor with the same values, sizes and strides. A thread that runs backward calls
  /// it each time that a node reads the tensor. Destroyed when the node releases the tensor.
  using Return = std::function<at::Tensor()>;
  /// Takes over `tensor`, which the graph then does not hold. Returns an empty function to leave it
  /// to the graph. The operation that saves passes exceptions on.
  virtual Return keep(const at::Tensor& tensor) = 0;
};

/// While it lives, tensors that this thread's operations save go to `keeper`, which outlives it.
class SavedTensorsScope {
 public:
  explicit SavedTensorsScope(TensorKeeper& keeper);
  ~SavedTensorsScope();
  SavedTensorsScope(const SavedTensorsScope&) = delete;

 private:
  TensorKeeper* outer_;
};

}  // namespace trireme::inline v0::memory
