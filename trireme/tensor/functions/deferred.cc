#include "trireme/tensor/functions/deferred.h"

#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/variable.h>

namespace trireme::inline v0::tensor {
namespace {
thread_local std::vector<DeferredGradient>* current = nullptr;
}  // namespace

DeferScope::DeferScope(std::vector<DeferredGradient>& into) : ScopedValue(current, &into) {}

at::Tensor leaf_itself(const at::Tensor& saved) {
  const auto node = torch::autograd::impl::try_get_grad_accumulator(saved);
  const auto* accumulates = dynamic_cast<const torch::autograd::AccumulateGrad*>(node.get());
  return accumulates != nullptr ? accumulates->variable : saved;
}

std::vector<DeferredGradient>* deferred_gradients() noexcept { return current; }

}  // namespace trireme::inline v0::tensor
