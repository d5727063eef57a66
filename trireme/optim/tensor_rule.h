// apply_by_tensors(): runs an optimizer's rule (kernel/optimizers/rule.h) by LibTorch's operations, for
// memory that no kernel of ours reaches.
//
// Each operation of the rule is one over the whole slice. A product and a sum are rounded one after
// the other, so that an element's bits do not depend on its place. Internal to optim/.
#pragma once

#include <ATen/Functions.h>

#include <algorithm>
#include <array>

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
  static at::Tensor max(const at::Tensor& x, const at::Scalar& least) {
    return at::clamp_min(x, least);
  }
  static at::Tensor sign(const at::Tensor& x) { return at::sign(x); }
};

/// `arrays`: the rule's, of equal size; undefined: there is none. Changes those that the rule
/// updates; returns the one that it writes (undefined: it writes none).
template <class Rule>
at::Tensor apply_by_tensors(const Rule& rule,
                            const std::array<at::Tensor, Rule::kShape.arrays()>& arrays) {
  static_assert(Rule::kShape.out <= 1);
  at::Tensor values[Rule::kShape.arrays()];
  std::copy(arrays.begin(), arrays.end(), values);
  rule(TensorMath{}, values);
  constexpr auto first = static_cast<std::size_t>(Rule::kShape.in);
  constexpr auto written = first + static_cast<std::size_t>(Rule::kShape.both);
  for (std::size_t k = first; k < written; ++k)
    if (arrays[k].defined()) arrays[k].copy_(values[k]);
  return Rule::kShape.out == 1 ? values[arrays.size() - 1] : at::Tensor();
}

}  // namespace trireme::inline v0::optim
