// The arithmetic of a rule (rule.h) for one element: fp64 on the CPU, both types on GPUs. fp32 has
// the bits of the CPU's vectors with fused multiply-add (except the sign of NaN).
#pragma once

#include <cmath>

#include "trireme/kernel/cuda/gpu_call.h"

namespace trireme::inline v0::kernel {

template <class T>
struct ElementMath;

template <>
struct ElementMath<double> {
  using Value = double;
  static TRIREME_GPU_CALL double number(double x) { return x; }
  static TRIREME_GPU_CALL double multiply_add(double a, double b, double c) { return a * b + c; }
  static TRIREME_GPU_CALL double sqrt(double x) { return std::sqrt(x); }
  static TRIREME_GPU_CALL double max(double a, double b) { return a < b ? b : a; }
  static TRIREME_GPU_CALL double min(double a, double b) { return b < a ? b : a; }
  static TRIREME_GPU_CALL double sign(double x) { return x > 0 ? 1.0 : x < 0 ? -1.0 : x; }
};

template <>
struct ElementMath<float> {
  using Value = float;
  static TRIREME_GPU_CALL float number(double x) { return static_cast<float>(x); }
  static TRIREME_GPU_CALL float multiply_add(float a, float b, float c) {
    return std::fma(a, b, c);
  }
  static TRIREME_GPU_CALL float sqrt(float x) { return std::sqrt(x); }
  // If the arguments are equal (+0 and -0), the second, as the CPU's vector instructions.
  static TRIREME_GPU_CALL float max(float a, float b) { return a > b ? a : b; }
  static TRIREME_GPU_CALL float min(float a, float b) { return a < b ? a : b; }
  static TRIREME_GPU_CALL float sign(float x) { return x > 0 ? 1.0f : x < 0 ? -1.0f : x; }
};

}  // namespace trireme::inline v0::kernel
