// apply_by_lists(): runs an optimizer's rule (kernel/optimizers/options.h) by LibTorch's operations,
// for memory that no kernel of ours reaches.
//
// Each operation of the rule is one over lists of whole slices, which CUDA computes in few kernels. A
// product and a sum are rounded one after the other, so that an element's bits do not depend on its
// place. Internal to optim/.
#pragma once

#include <ATen/Functions.h>

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

namespace trireme::inline v0::optim {

/// Tensors of any sizes; two lists that an operation takes have the same sizes.
struct TensorList {
  std::vector<at::Tensor> all;
};
inline TensorList operator*(const TensorList& a, const TensorList& b) {
  return {at::_foreach_mul(a.all, b.all)};
}
inline TensorList operator*(const TensorList& a, const at::Scalar& b) {
  return {at::_foreach_mul(a.all, b)};
}
inline TensorList operator*(const at::Scalar& a, const TensorList& b) { return b * a; }
inline TensorList operator/(const TensorList& a, const TensorList& b) {
  return {at::_foreach_div(a.all, b.all)};
}
inline TensorList operator/(const TensorList& a, const at::Scalar& b) {
  return {at::_foreach_div(a.all, b)};
}
inline TensorList operator+(const TensorList& a, const TensorList& b) {
  return {at::_foreach_add(a.all, b.all)};
}
inline TensorList operator+(const TensorList& a, const at::Scalar& b) {
  return {at::_foreach_add(a.all, b)};
}
inline TensorList operator-(const TensorList& a, const TensorList& b) {
  return {at::_foreach_sub(a.all, b.all)};
}

/// The arithmetic that a rule is given, over lists of tensors.
struct TensorMath {
  using Value = TensorList;
  static at::Scalar number(double x) { return x; }
  template <class A, class B>
  static TensorList multiply_add(const A& a, const B& b, const TensorList& c) {
    return a * b + c;
  }
  static TensorList sqrt(const TensorList& x) { return {at::_foreach_sqrt(x.all)}; }
  static TensorList max(const at::Scalar& least, const TensorList& x) {
    return {at::_foreach_clamp_min(x.all, least)};
  }
  static TensorList sign(const TensorList& x) { return {at::_foreach_sign(x.all)}; }
};

/// `arrays`: the rule's, of equal sizes; empty: there is none. Changes those that the rule updates;
/// returns the one that it writes (empty: it writes none).
template <class Rule>
TensorList apply_by_lists(const Rule& rule,
                          const std::array<TensorList, Rule::kShape.arrays()>& arrays) {
  static_assert(Rule::kShape.out <= 1);
  TensorList values[Rule::kShape.arrays()];
  std::copy(arrays.begin(), arrays.end(), values);
  rule(TensorMath{}, values);
  constexpr auto first = static_cast<std::size_t>(Rule::kShape.in);
  constexpr auto written = first + static_cast<std::size_t>(Rule::kShape.both);
  for (std::size_t k = first; k < written; ++k)
    if (!arrays[k].all.empty()) at::_foreach_copy_(arrays[k].all, values[k].all);
  return Rule::kShape.out == 1 ? std::move(values[arrays.size() - 1]) : TensorList();
}

/// The same of one slice; an undefined array: there is none.
template <class Rule>
at::Tensor apply_by_tensors(const Rule& rule,
                            const std::array<at::Tensor, Rule::kShape.arrays()>& arrays) {
  std::array<TensorList, Rule::kShape.arrays()> lists;
  for (std::size_t k = 0; k < arrays.size(); ++k)
    if (arrays[k].defined()) lists[k].all = {arrays[k]};
  const TensorList out = apply_by_lists(rule, lists);
  return out.all.empty() ? at::Tensor() : out.all.front();
}

}  // namespace trireme::inline v0::optim
