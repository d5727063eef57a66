// Matrix products on raw memory for the shapes of attention and of small layers: a few dozen to a
// few hundred rows, any strides, either operand transposed. At these sizes BLAS libraries lose much
// time on dispatch, and a vendor's library runs at half speed on other vendors' processors.
//
// Each element of c has one accumulator, summed over k in ascending order, so its bits do not
// depend on m, n or its position. The processor's bf16 instruction sums pairs in fp32. Row-major
// throughout. Thread safe; scratch memory is thread-local. `c` may not overlap an operand.
#pragma once

#include <cstddef>
#include <cstdint>

#include "trireme/base/buffer.h"

namespace trireme::inline v0::kernel {

/// A matrix as it is stored, with rows `stride` elements apart. If `transposed`, the product uses
/// its transpose.
template <class T>
struct Matrix {
  const T* data = nullptr;
  std::size_t stride = 0;
  bool transposed = false;
};

/// c [m, n] = a [m, k] b [k, n], plus c if `accumulate`. The rows of c are `c_stride` apart.
template <class T>
struct Product {
  std::size_t m = 0, n = 0, k = 0;
  Matrix<T> a, b;
  float* c = nullptr;
  std::size_t c_stride = 0;
  bool accumulate = false;
};

void gemm(const Product<float>& product);
/// Requires has_bf16_products() (isa.h); CheckFailure otherwise.
void gemm(const Product<BFloat16>& product);

/// to [columns, rows] = from [rows, columns], transposed. The ranges may not overlap.
void transpose(const float* from, std::size_t rows, std::size_t columns, float* to);

}  // namespace trireme::inline v0::kernel
