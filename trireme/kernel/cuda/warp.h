// A warp: 32 threads of a GPU that work on one row together. The host compiles the same code: there
// one thread does the work of the 32, with the same bits except from functions such as exp.
#pragma once

#include <cstddef>
#include <cstdint>

#include "trireme/kernel/cuda/codec.h"

namespace trireme::inline v0::kernel {
namespace cuda {

inline constexpr int kWarp = 32, kWarpsOfBlock = 8;

/// One number for each thread of a warp.
template <class T>
struct Lanes {
#ifdef __CUDA_ARCH__
  T own;
  TRIREME_GPU_CALL T& operator[](int) { return own; }
#else
  T all[kWarp];
  T& operator[](int lane) { return all[lane]; }
#endif
};

/// Calls body(lane) in each thread.
template <class Body>
TRIREME_GPU_CALL void each_lane(Body body) {
#ifdef __CUDA_ARCH__
  body(static_cast<int>(threadIdx.x % kWarp));
#else
  for (int lane = 0; lane < kWarp; ++lane) body(lane);
#endif
}

/// Combines the numbers of each `kGroup` neighbouring threads pairwise; each thread gets the
/// group's result. combine() must be commutative.
template <int kGroup = kWarp, class T, class Combine>
TRIREME_GPU_CALL void combine_lanes(Lanes<T>& numbers, Combine combine) {
  for (int apart = kGroup / 2; apart > 0; apart /= 2) {
#ifdef __CUDA_ARCH__
    numbers.own = combine(numbers.own, __shfl_xor_sync(0xffffffffu, numbers.own, apart));
#else
    const Lanes<T> before = numbers;
    for (int lane = 0; lane < kWarp; ++lane)
      numbers.all[lane] = combine(before.all[lane], before.all[lane ^ apart]);
#endif
  }
}
template <class T, class Combine>
TRIREME_GPU_CALL T across(Lanes<T> numbers, Combine combine) {
  combine_lanes(numbers, combine);
  return numbers[0];
}

struct Add {
  template <class T>
  TRIREME_GPU_CALL T operator()(T a, T b) const {
    return a + b;
  }
};
/// NaN if either is NaN.
struct Larger {
  TRIREME_GPU_CALL float operator()(float a, float b) const { return a > b || a != a ? a : b; }
};

/// kCount numbers that a thread reads or writes at once; Stored is their form in memory.
template <int kCount>
struct Floats {
  float values[kCount];
  TRIREME_GPU_CALL float& operator[](int i) { return values[i]; }
  TRIREME_GPU_CALL float operator[](int i) const { return values[i]; }
};
inline constexpr std::size_t kVectorBytes = 16;  // that one instruction of a GPU moves
template <int kCount, class T>
struct alignas(kCount * sizeof(T) < kVectorBytes ? kCount * sizeof(T) : kVectorBytes) Stored {
  T values[kCount];
};

template <int kCount, class T>
TRIREME_GPU_CALL Floats<kCount> read(const T* at) {
  const Stored<kCount, T> stored = *reinterpret_cast<const Stored<kCount, T>*>(at);
  Floats<kCount> numbers;
  for (int i = 0; i < kCount; ++i) numbers[i] = Codec<T>::decode(stored.values[i]);
  return numbers;
}
template <int kCount, class T>
TRIREME_GPU_CALL void write(T* at, const Floats<kCount>& numbers) {
  Stored<kCount, T> stored;
  for (int i = 0; i < kCount; ++i) stored.values[i] = Codec<T>::encode(numbers[i]);
  *reinterpret_cast<Stored<kCount, T>*>(at) = stored;
}

/// A thread takes so many numbers at once if rows and addresses allow it, else one.
inline constexpr int kPack = 8;
template <class... Pointer>
TRIREME_GPU_CALL bool can_pack(std::size_t row_length, const Pointer*... rows) {
  const auto aligned = [](const void* at) {
    return reinterpret_cast<std::uintptr_t>(at) % kVectorBytes == 0;
  };
  return row_length % kPack == 0 && (aligned(rows) && ...);
}

}  // namespace cuda
}  // namespace trireme::inline v0::kernel
