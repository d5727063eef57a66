// The arithmetic of a rule (options.h) for one element: fp64 on the CPU, both types on GPUs. fp32
// has the bits of the CPU's vectors with fused multiply-add (except the sign of NaN).
#pragma once

#include <cmath>
#include <type_traits>

#include "trireme/kernel/cuda/gpu_call.h"

namespace trireme::inline v0::kernel {

template <class T>
struct ElementMath {
  using Value = T;
  static TRIREME_GPU_CALL T number(double x) { return static_cast<T>(x); }
  static TRIREME_GPU_CALL T multiply_add(T a, T b, T c) {
    if constexpr (std::is_same_v<T, float>) {
      return std::fma(a, b, c);
    } else {
      return a * b + c;
    }
  }
  static TRIREME_GPU_CALL T sqrt(T x) { return std::sqrt(x); }
  // If the arguments are equal (+0 and -0) or one is a NaN, the second, as the CPU's vector
  // instructions.
  static TRIREME_GPU_CALL T max(T a, T b) { return a > b ? a : b; }
  static TRIREME_GPU_CALL T sign(T x) { return x > 0 ? T(1) : x < 0 ? T(-1) : x; }
};

}  // namespace trireme::inline v0::kernel
