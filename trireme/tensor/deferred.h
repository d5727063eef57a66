// Deferred weight gradients: a backward pass in two halves, B = I + W (Qi et al., "Zero Bubble
// Pipeline Parallelism", arXiv 2401.10241).
//
// While a DeferScope of this thread lives, linear() and linear_gelu() give the gradient of their
// input alone in the backward pass and put down what those of weight and bias take: their input
// and the gradient of their output. compute() makes them later: the same kernels on the same
// values, so the same bits. Other functions compute everything at once. One thread at a time.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

namespace trireme {
inline namespace v0 {
namespace tensor {

/// A parameter's gradient that is still to be computed.
struct DeferredGradient {
  at::Tensor parameter;
  std::function<at::Tensor()> compute;
};

class DeferScope {
 public:
  explicit DeferScope(std::vector<DeferredGradient>& into);
  ~DeferScope();
  DeferScope(const DeferScope&) = delete;

 private:
  std::vector<DeferredGradient>* outer_;
};

/// The leaf that `saved` is, or was: where somebody keeps what autograd saves
/// (memory/saved_tensors.h), a node reads another tensor of the same memory.
at::Tensor leaf_itself(const at::Tensor& saved);

/// Of this thread; null: nothing is deferred.
std::vector<DeferredGradient>* deferred_gradients() noexcept;

}  // namespace tensor
}  // namespace v0
}  // namespace trireme
