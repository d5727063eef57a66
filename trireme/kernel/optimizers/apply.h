// apply(): runs a rule (options.h) over raw memory, with the vectors of isa() for fp32.
//
// Tails run the masked form of the same vector code. Pointers need no alignment. Stateless, thread
// safe; ranges may not overlap unless they are equal.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "trireme/base/check.h"
#include "trireme/kernel/optimizers/element_math.h"
#include "trireme/kernel/simd.h"

namespace trireme::inline v0::kernel {

/// The rule's arrays: `in` are read, `out` are updated or written; null where RuleShape allows it.
/// `compute` receives the new weight (out[0]) rounded to bf16; it may be null, and fp64 ignores it.
template <class Rule>
void apply(const Rule& rule, const float* const* in, float* const* out, BFloat16* compute,
           std::size_t count) {
  simd().rules.of<Rule>()(rule, in, out, compute, count);
}
template <class Rule>
void apply(const Rule& rule, const double* const* in, double* const* out, BFloat16*,
           std::size_t count) {
  constexpr RuleShape shape = Rule::kShape;
  for (std::size_t i = 0; i < count; ++i) {
    double values[shape.arrays()] = {};
    for (int k = 0; k < shape.in; ++k) values[k] = in[k][i];
    for (int k = 0; k < shape.both; ++k)
      if (out[k] != nullptr) values[shape.in + k] = out[k][i];
    rule(ElementMath<double>(), values);
    for (int k = 0; k < shape.both + shape.out; ++k)
      if (out[k] != nullptr) out[k][i] = values[shape.in + k];
  }
}
/// The same with lists: apply(rule, {gradient}, {weight, momentum}, compute, count).
template <class Rule, class T, std::size_t In, std::size_t Out>
void apply(const Rule& rule, const T* const (&in)[In], T* const (&out)[Out], BFloat16* compute,
           std::size_t count) {
  static_assert(In == Rule::kShape.in && Out == Rule::kShape.both + Rule::kShape.out);
  apply(rule, static_cast<const T* const*>(in), static_cast<T* const*>(out), compute, count);
}

}  // namespace trireme::inline v0::kernel
