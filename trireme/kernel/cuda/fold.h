// The arithmetic of fold() in kernel/reduce.h, one element at a time. Both the GPU's compiler and
// the host's compile it: the same operations in the same order, so the same bits as fold() on the
// CPU (except for the payload of a NaN, which depends on the processor).
//
// The tests compare the host's build with fold(), bit for bit. kernels.cu compiles this file again
// with __device__, without contraction and without flushing denormals. Plain C++, no standard
// library, no state.
#pragma once

#include <cstdint>

#include "trireme/kernel/cuda/codec.h"

namespace trireme::inline v0::kernel {
namespace cuda {

inline constexpr int kMostOperands = 128;
/// The most partial sums open at a time: the depth of a tree of 2^32 leaves, plus one.
inline constexpr int kMostOpen = 33;

/// The parameter of a fold kernel. Operands are ascending; after operand k has been read, the last
/// two partial sums are merged merges[k] times. The result is divided by `by` unless that is 0.
struct FoldArguments {
  const void* in[kMostOperands];
  void* out;
  std::uint64_t count;
  double by;
  std::uint32_t num_operands;
  std::uint8_t merges[kMostOperands];
};

// The values of kernel::Combine, in the same order.
enum FoldOp { FoldSum, FoldMin, FoldMax, FoldProduct };

/// Min and Max return a NaN if either operand is one.
template <FoldOp kOp, class Compared, class Math>
TRIREME_GPU_CALL Math combine_two(Math a, Math b) {
  if constexpr (kOp == FoldSum) {
    return static_cast<Math>(a + b);
  } else if constexpr (kOp == FoldProduct) {
    return static_cast<Math>(a * b);
  } else {
    const Compared left = static_cast<Compared>(a), right = static_cast<Compared>(b);
    const bool first = kOp == FoldMin ? left < right : left > right;
    return first || left != left ? a : b;
  }
}

/// Computes element i of the result. 16-bit floats are accumulated in fp32 and rounded once; a
/// division rounds again, as in fold().
template <FoldOp kOp, class T>
TRIREME_GPU_CALL void fold_element(const FoldArguments& arguments, std::uint64_t i) {
  using C = Codec<T>;
  using Math = typename C::Math;
  Math open[kMostOpen];
  int top = 0;
  for (std::uint32_t k = 0; k < arguments.num_operands; ++k) {
    open[top++] = C::decode(static_cast<const T*>(arguments.in[k])[i]);
    for (int merge = arguments.merges[k]; merge > 0; --merge) {
      --top;
      open[top - 1] = combine_two<kOp, typename C::Compared>(open[top - 1], open[top]);
    }
  }
  T result = C::encode(open[0]);
  if (arguments.by != 0)
    result = C::encode(static_cast<Math>(C::decode(result) / static_cast<Math>(arguments.by)));
  static_cast<T*>(arguments.out)[i] = result;
}

}  // namespace cuda
}  // namespace trireme::inline v0::kernel
