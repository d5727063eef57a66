// How the GPU's kernels read and write stored numbers. Plain C++: the host's compiler gives the
// same bits.
#pragma once

#include <type_traits>

#include "trireme/base/buffer.h"
#include "trireme/kernel/cuda/gpu_call.h"
#include "trireme/kernel/float16.h"

namespace trireme::inline v0::kernel {
namespace cuda {

/// The type that a stored type is computed in (`Math`), and the one that Min and Max compare. Sums
/// and products of integers wrap (unsigned); Min and Max compare them as signed, except bytes.
template <class T>
struct Codec {
  using Math = T;
  using Compared = typename std::conditional_t<std::is_integral_v<T> && (sizeof(T) > 1),
                                               std::make_signed<T>, std::type_identity<T>>::type;
  static TRIREME_GPU_CALL Math decode(T value) { return value; }
  static TRIREME_GPU_CALL T encode(Math value) { return value; }
};

template <>
struct Codec<BFloat16> {
  using Math = float;
  using Compared = float;
  static TRIREME_GPU_CALL float decode(BFloat16 value) { return value_of(value); }
  static TRIREME_GPU_CALL BFloat16 encode(float value) { return bfloat16_of(value); }
};
template <>
struct Codec<Float16> {
  using Math = float;
  using Compared = float;
  static TRIREME_GPU_CALL float decode(Float16 value) { return value_of(value); }
  static TRIREME_GPU_CALL Float16 encode(float value) { return float16_of(value); }
};

}  // namespace cuda
}  // namespace trireme::inline v0::kernel
