// Cross entropy of logits on GPUs: the code of the kernels trireme_loss_<pass>_<type> (kernels.cu).
// A warp computes a row. The order of addition depends on the width only, and is not the CPU's.
#pragma once

#include <cmath>

#include "trireme/kernel/cuda/warp.h"

namespace trireme::inline v0::kernel {
namespace cuda {

/// Rows of `width` logits that begin `pitch` elements apart. A row with a negative target is
/// ignored; a target that is not below `width` gives NaN as loss and gradients.
template <class T>
struct LossRows {
  const T* logits = nullptr;
  const std::int64_t* targets = nullptr;
  std::size_t rows = 0, width = 0, pitch = 0;
  float* logsumexp = nullptr;    // [rows]: forward writes it, backward reads it
  float* losses = nullptr;       // [rows]: forward writes it
  const float* scale = nullptr;  // backward: the sum's gradient
  T* dlogits = nullptr;          // backward: rows `pitch` apart; 0 beyond `width`
};

constexpr float kNoNumber = __builtin_nanf(""), kLowest = -__builtin_inff();

template <int kCount, class T>
TRIREME_GPU_CALL Floats<kCount> logits_from(const LossRows<T>& call, std::size_t row,
                                            std::size_t c) {
  Floats<kCount> logits = read<kCount>(call.logits + row * call.pitch + c);
  for (int i = 0; i < kCount; ++i)
    if (c + static_cast<std::size_t>(i) >= call.width) logits[i] = kLowest;
  return logits;
}

template <class T>
TRIREME_GPU_CALL float loss_of(const LossRows<T>& call, std::size_t row, float logsumexp) {
  const std::int64_t target = call.targets[row];
  if (target < 0) return 0;
  if (target >= static_cast<std::int64_t>(call.width)) return kNoNumber;
  return logsumexp - Codec<T>::decode(call.logits[row * call.pitch + target]);
}

template <int kCount, class T>
TRIREME_GPU_CALL void loss_row(const LossRows<T>& call, std::size_t row) {
  const std::size_t stride = std::size_t{kWarp} * kCount;
  Lanes<float> maxima, sums;
  each_lane([&](int lane) {
    float largest = kLowest, sum = 0;
    for (std::size_t c = static_cast<std::size_t>(lane) * kCount; c < call.width; c += stride) {
      const Floats<kCount> logits = logits_from<kCount>(call, row, c);
      float next = largest;
      for (int i = 0; i < kCount; ++i) next = Larger()(next, logits[i]);
      const float shift = next == kLowest ? 0 : next;  // all so far are -infinity
      sum *= std::exp(largest - shift);
      for (int i = 0; i < kCount; ++i) sum += std::exp(logits[i] - shift);
      largest = next;
    }
    maxima[lane] = largest;
    sums[lane] = sum;
  });
  const float largest = across(maxima, Larger());
  const float shift = largest == kLowest ? 0 : largest;
  each_lane([&](int lane) { sums[lane] *= std::exp(maxima[lane] - shift); });
  const float logsumexp = shift + std::log(across(sums, Add()));
  each_lane([&](int lane) {
    if (lane != 0) return;
    call.logsumexp[row] = logsumexp;
    call.losses[row] = loss_of(call, row, logsumexp);
  });
}

template <int kCount, class T>
TRIREME_GPU_CALL void loss_backward_row(const LossRows<T>& call, std::size_t row) {
  const std::int64_t target = call.targets[row];
  const bool ignored = target < 0;
  const float scale = target < static_cast<std::int64_t>(call.width) ? *call.scale : kNoNumber;
  const float logsumexp = call.logsumexp[row];
  each_lane([&](int lane) {
    for (std::size_t c = static_cast<std::size_t>(lane) * kCount; c < call.pitch;
         c += std::size_t{kWarp} * kCount) {
      Floats<kCount> d = logits_from<kCount>(call, row, c);
      for (int i = 0; i < kCount; ++i) {
        const auto column = static_cast<std::int64_t>(c) + i;
        const float probability = std::exp(d[i] - logsumexp);
        d[i] = (column == target ? probability - 1 : probability) * scale;
        if (ignored || column >= static_cast<std::int64_t>(call.width)) d[i] = 0;
      }
      write(call.dlogits + row * call.pitch + c, d);
    }
  });
}

// The work of warp `warp` of `num_warps`.
template <class T>
TRIREME_GPU_CALL void loss_share(const LossRows<T>& call, std::size_t warp, std::size_t num_warps) {
  const bool packs = can_pack(call.pitch, call.logits);
  for (std::size_t row = warp; row < call.rows; row += num_warps)
    packs ? loss_row<kPack>(call, row) : loss_row<1>(call, row);
}
template <class T>
TRIREME_GPU_CALL void loss_backward_share(const LossRows<T>& call, std::size_t warp,
                                          std::size_t num_warps) {
  const bool packs = can_pack(call.pitch, call.logits, call.dlogits);
  for (std::size_t row = warp; row < call.rows; row += num_warps)
    packs ? loss_backward_row<kPack>(call, row) : loss_backward_row<1>(call, row);
}

}  // namespace cuda
}  // namespace trireme::inline v0::kernel
