// apply_by_tensors(): runs an optimizer's rule (kernel/optimizers/rule.h) by LibTorch's operations, for
// memory that no kernel of ours reaches.
//
// Each operation of the rule is one over the whole slice. A product and a sum are rounded one after
// the other, so that an element's bits do not depend on its place. Internal to optim/.
#pragma once

#include <ATen/Functions.h>
#include <c10/core/GradMode.h>

#include <span>

#include "trireme/base/check.h"
#include "trireme/optim/owned_slice.h"
#include "trireme/tensor/convert.h"

namespace trireme::inline v0::optim {

/// The arithmetic that a rule is given, over tensors.
struct TensorMath {
  using Value = at::Tensor;
  static at::Scalar number(double x) { return x; }
  template <class A, class B>
  static at::Tensor multiply_add(const A& a, const B& b, const at::Tensor& c) {
    return a * b + c;
  }
  static at::Tensor sqrt(const at::Tensor& x) { return at::sqrt(x); }
  static at::Tensor sign(const at::Tensor& x) { return at::sign(x); }
};

/// Updates the slice's weight and state, and its copy in the compute type.
template <class Rule>
void apply_by_tensors(const Rule& rule, const OwnedSlice& slice,
                      std::span<const at::Tensor> states) {
  static_assert(Rule::kShape.in == 1 && Rule::kShape.out == 0);
  if (slice.size() == 0) return;
  const c10::AutoGradMode no_grad(false);
  const auto flat = [&](const void* data, DType type) {
    return tensor::view_of({.data = const_cast<void*>(data),
                            .count = static_cast<std::size_t>(slice.size()),
                            .dtype = type,
                            .device = slice.device});
  };
  const at::Tensor weight = flat(slice.weight, slice.master_dtype);
  at::Tensor values[Rule::kShape.arrays()] = {flat(slice.gradient, slice.master_dtype), weight};
  for (std::size_t k = 0; k < states.size(); ++k) values[k + 2] = states[k];
  rule(TensorMath{}, values);
  weight.copy_(values[1]);
  for (std::size_t k = 0; k < states.size(); ++k)
    if (states[k].defined()) at::Tensor(states[k]).copy_(values[k + 2]);
  if (slice.compute != nullptr) flat(slice.compute, slice.compute_dtype).copy_(weight);
}

}  // namespace trireme::inline v0::optim
