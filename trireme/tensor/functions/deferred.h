// Deferred weight gradients: a backward pass in two halves, B = I + W (Qi et al., "Zero Bubble
// Pipeline Parallelism", arXiv 2401.10241).
//
// While a DeferScope of this thread lives, the backward pass of linear() and linear_gelu() on the
// CPU computes the gradient of the input only. For weight and bias it stores the input and the
// output's gradient; compute() makes their gradients later, with the same bits. Other functions,
// and functions on devices, are not deferred. Use from one thread at a time.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

#include "trireme/tensor/scoped_value.h"

namespace trireme::inline v0::tensor {

/// A parameter's gradient that is not computed yet.
struct DeferredGradient {
  at::Tensor parameter;
  std::function<at::Tensor()> compute;
};

struct DeferScope : ScopedValue<std::vector<DeferredGradient>*> {
  explicit DeferScope(std::vector<DeferredGradient>& into);
};

/// The leaf that `saved` was before autograd saved it. With saved-tensor hooks
/// (memory/saved_tensors.h) a node reads another tensor of the same memory instead.
at::Tensor leaf_itself(const at::Tensor& saved);

/// This thread's list; null: nothing is deferred.
std::vector<DeferredGradient>* deferred_gradients() noexcept;

}  // namespace trireme::inline v0::tensor
