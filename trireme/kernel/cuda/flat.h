// Arithmetic of a step on flat memory on GPUs, with the CPU's bits: the code of the kernels
// trireme_leaf_<type> and trireme_squares_<type> (kernels.cu).
#pragma once

#include <cmath>
#include <type_traits>

#include "trireme/kernel/cuda/fold.h"
#include "trireme/kernel/cuda/warp.h"

namespace trireme::inline v0::kernel {
namespace cuda {

/// add_leaf() (kernel/leaf_sum.h) of a gradient of T.
template <class T>
struct LeafArguments {
  using Sum = typename Codec<T>::Math;
  const T* gradient = nullptr;
  Sum weight = 1;
  const Sum* open[kMostOpen] = {};
  std::uint32_t num_open = 0;
  Sum* out = nullptr;
  std::uint64_t count = 0;
  bool* not_finite = nullptr;  // set to true if a result is not finite, else unchanged
};

template <class T>
TRIREME_GPU_CALL void leaf_share(const LeafArguments<T>& call, std::uint64_t thread,
                                 std::uint64_t num_threads) {
  using Sum = typename Codec<T>::Math;
  bool finite = true;
  for (std::uint64_t i = thread; i < call.count; i += num_threads) {
    Sum sum = 0;
    if (call.gradient != nullptr) sum = Codec<T>::decode(call.gradient[i]) * call.weight + Sum(0);
    for (std::uint32_t k = call.num_open; k-- > 0;) sum = call.open[k][i] + sum;
    call.out[i] = sum;
    finite = finite && sum - sum == 0;
  }
  if (!finite) *call.not_finite = true;
}

/// chunk_square_sum() (kernel/elementwise.h) of each `chunk` values.
template <class T>
struct SquaresArguments {
  const T* values = nullptr;
  std::uint64_t count = 0, chunk = 1;
  double* sums = nullptr;  // [num_chunks()]
};
template <class T>
constexpr std::uint64_t num_chunks(const SquaresArguments<T>& call) {
  return (call.count + call.chunk - 1) / call.chunk;
}

/// A warp takes two chunks at a time.
template <class T>
TRIREME_GPU_CALL void squares_share(const SquaresArguments<T>& call, std::uint64_t warp,
                                    std::uint64_t num_warps) {
  constexpr int kSums = 16;  // of a chunk, folded at its end
  constexpr std::uint64_t kChunks = kWarp / kSums;
  const std::uint64_t chunks = num_chunks(call);
  for (std::uint64_t pair = warp; pair * kChunks < chunks; pair += num_warps) {
    Lanes<double> sums;
    const auto chunk_of = [&](int lane) {
      return pair * kChunks + static_cast<std::uint64_t>(lane / kSums);
    };
    each_lane([&](int lane) {
      const std::uint64_t begin = chunk_of(lane) * call.chunk, end = begin + call.chunk;
      double sum = 0;
      for (std::uint64_t i = begin + static_cast<std::uint64_t>(lane % kSums);
           i < end && i < call.count; i += kSums) {
        const double value = call.values[i];
        sum += value * value;
      }
      sums[lane] = sum;
    });
    combine_lanes<kSums>(sums, Add());
    each_lane([&](int lane) {
      if (lane % kSums == 0 && chunk_of(lane) < chunks) call.sums[chunk_of(lane)] = sums[lane];
    });
  }
}

}  // namespace cuda
}  // namespace trireme::inline v0::kernel
