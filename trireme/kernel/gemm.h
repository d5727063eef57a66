// Matrix products on raw memory for the shapes that attention is made of: a few dozen to a few
// hundred rows, any strides, either operand transposed. Libraries spend much of such a product on
// dispatch, and those of one vendor run at half speed on another's processors.
//
// One accumulator per element of c, summed over k in ascending order, so an element's bits do not
// depend on m, n or where it stands. bf16 pairs are summed in fp32 by the processor's own
// instruction. Row-major throughout. Thread safe; scratch is the thread's own. `c` may not overlap
// an operand.
#pragma once

#include <cstddef>
#include <cstdint>

#include "trireme/base/dtype.h"

namespace trireme {
inline namespace v0 {
namespace kernel {

/// A matrix as it is stored: rows `stride` elements apart; `transposed`: the product sees its
/// transpose.
template <class T>
struct Matrix {
  const T* data = nullptr;
  std::size_t stride = 0;
  bool transposed = false;
};

/// c [m, n], rows `c_stride` apart, = a [m, k] b [k, n] (+ c where `accumulate`).
template <class T>
struct Product {
  std::size_t m = 0, n = 0, k = 0;
  Matrix<T> a, b;
  float* c = nullptr;
  std::size_t c_stride = 0;
  bool accumulate = false;
};

void gemm(const Product<float>& product);
/// Only where has_bf16_products() (isa.h).
void gemm(const Product<BFloat16>& product);

}  // namespace kernel
}  // namespace v0
}  // namespace trireme
