// Layer norm (kernel/transformer.h) on GPUs: the kernels trireme_norm_<pass>_<type> (kernels.cu).
// The order of addition depends on the rows' number and width only, and is not the CPU's.
#pragma once

#include <cmath>

#include "trireme/kernel/cuda/warp.h"
#include "trireme/kernel/transformer.h"

namespace trireme::inline v0::kernel {
namespace cuda {

template <int kCount, class T>
TRIREME_GPU_CALL void norm_row(const NormForward<T>& call, std::size_t row) {
  const std::size_t begin = row * call.width, stride = std::size_t{kWarp} * kCount;
  const float* const h = call.update != nullptr ? call.h : call.x;
  Lanes<float> sums, squares;
  each_lane([&](int lane) {
    float sum = 0;
    for (std::size_t c = static_cast<std::size_t>(lane) * kCount; c < call.width; c += stride) {
      Floats<kCount> x = read<kCount>(call.x + begin + c);
      if (call.update != nullptr) {
        const Floats<kCount> update = read<kCount>(call.update + begin + c);
        for (int i = 0; i < kCount; ++i) x[i] += update[i];
        write(call.h + begin + c, x);
      }
      for (int i = 0; i < kCount; ++i) sum += x[i];
    }
    sums[lane] = sum;
  });
  const auto width = static_cast<float>(call.width);
  const float mean = across(sums, Add()) / width;
  each_lane([&](int lane) {
    float sum = 0;
    for (std::size_t c = static_cast<std::size_t>(lane) * kCount; c < call.width; c += stride) {
      const Floats<kCount> x = read<kCount>(h + begin + c);
      for (int i = 0; i < kCount; ++i) sum += (x[i] - mean) * (x[i] - mean);
    }
    squares[lane] = sum;
  });
  const float variance = across(squares, Add()) / width;
  const float rstd = 1 / std::sqrt(variance + static_cast<float>(call.epsilon));
  each_lane([&](int lane) {
    if (lane == 0) {
      call.mean[row] = mean;
      call.rstd[row] = rstd;
    }
    for (std::size_t c = static_cast<std::size_t>(lane) * kCount; c < call.width; c += stride) {
      Floats<kCount> y = read<kCount>(h + begin + c);
      const Floats<kCount> weight = read<kCount>(call.weight + c);
      for (int i = 0; i < kCount; ++i) y[i] = (y[i] - mean) * rstd * weight[i];
      if (call.bias != nullptr) {
        const Floats<kCount> bias = read<kCount>(call.bias + c);
        for (int i = 0; i < kCount; ++i) y[i] += bias[i];
      }
      write(call.y + begin + c, y);
    }
  });
}

/// The gradient of the input; norm_columns() computes those of weight and bias.
template <int kCount, class T>
TRIREME_GPU_CALL void norm_backward_row(const NormBackward<T>& call, std::size_t row) {
  const std::size_t begin = row * call.width, stride = std::size_t{kWarp} * kCount;
  const float mean = call.mean[row], rstd = call.rstd[row];
  Lanes<float> sums, dots;
  each_lane([&](int lane) {
    float sum = 0, dot = 0;
    for (std::size_t c = static_cast<std::size_t>(lane) * kCount; c < call.width; c += stride) {
      const Floats<kCount> dy = read<kCount>(call.dy + begin + c);
      const Floats<kCount> h = read<kCount>(call.h + begin + c);
      const Floats<kCount> weight = read<kCount>(call.weight + c);
      for (int i = 0; i < kCount; ++i) {
        const float scaled = dy[i] * weight[i];
        sum += scaled;
        dot += scaled * ((h[i] - mean) * rstd);
      }
    }
    sums[lane] = sum;
    dots[lane] = dot;
  });
  const auto width = static_cast<float>(call.width);
  const float mean_sum = across(sums, Add()) / width, mean_dot = across(dots, Add()) / width;
  each_lane([&](int lane) {
    for (std::size_t c = static_cast<std::size_t>(lane) * kCount; c < call.width; c += stride) {
      const Floats<kCount> dy = read<kCount>(call.dy + begin + c);
      const Floats<kCount> h = read<kCount>(call.h + begin + c);
      const Floats<kCount> weight = read<kCount>(call.weight + c);
      Floats<kCount> dx;
      for (int i = 0; i < kCount; ++i)
        dx[i] = (dy[i] * weight[i] - mean_sum - (h[i] - mean) * rstd * mean_dot) * rstd;
      if (call.dstream != nullptr) {
        const Floats<kCount> dstream = read<kCount>(call.dstream + begin + c);
        for (int i = 0; i < kCount; ++i) dx[i] += dstream[i];
      }
      write(call.dx + begin + c, dx);
      if (call.dupdate != nullptr) write(call.dupdate + begin + c, dx);
    }
  });
}

/// norm_columns() sums the gradients of so many rows to one row of `dweight` (and `dbias`). On GPUs
/// both have num_norm_sums() rows and are overwritten.
inline constexpr std::size_t kNormRows = 32;
constexpr std::size_t num_norm_sums(std::size_t rows) { return (rows + kNormRows - 1) / kNormRows; }

/// `part` numbers the pieces, one per warp, of all num_norm_sums() rows of sums.
template <int kCount, class T>
TRIREME_GPU_CALL void norm_columns(const NormBackward<T>& call, std::size_t part) {
  const std::size_t stride = std::size_t{kWarp} * kCount;
  const std::size_t parts = (call.width + stride - 1) / stride;
  const std::size_t chunk = part / parts, first = chunk * kNormRows;
  const std::size_t last = first + kNormRows < call.rows ? first + kNormRows : call.rows;
  each_lane([&](int lane) {
    const std::size_t c = part % parts * stride + static_cast<std::size_t>(lane) * kCount;
    if (c >= call.width) return;
    Floats<kCount> dweight{}, dbias{};
    for (std::size_t row = first; row < last; ++row) {
      const Floats<kCount> dy = read<kCount>(call.dy + row * call.width + c);
      const Floats<kCount> h = read<kCount>(call.h + row * call.width + c);
      const float mean = call.mean[row], rstd = call.rstd[row];
      for (int i = 0; i < kCount; ++i) {
        dweight[i] += dy[i] * ((h[i] - mean) * rstd);
        dbias[i] += dy[i];
      }
    }
    write(call.dweight + chunk * call.width + c, dweight);
    if (call.dbias != nullptr) write(call.dbias + chunk * call.width + c, dbias);
  });
}

// The work of warp `warp` of `num_warps`.
template <class T>
TRIREME_GPU_CALL void norm_share(const NormForward<T>& call, std::size_t warp,
                                 std::size_t num_warps) {
  const bool packs =
      can_pack(call.width, call.x, call.weight, call.bias, call.update, call.h, call.y);
  for (std::size_t row = warp; row < call.rows; row += num_warps)
    packs ? norm_row<kPack>(call, row) : norm_row<1>(call, row);
}
template <class T>
TRIREME_GPU_CALL void norm_backward_share(const NormBackward<T>& call, std::size_t warp,
                                          std::size_t num_warps) {
  const bool packs =
      can_pack(call.width, call.dy, call.dstream, call.h, call.weight, call.dx, call.dupdate);
  for (std::size_t row = warp; row < call.rows; row += num_warps)
    packs ? norm_backward_row<kPack>(call, row) : norm_backward_row<1>(call, row);
}
template <class T>
TRIREME_GPU_CALL void norm_columns_share(const NormBackward<T>& call, std::size_t warp,
                                         std::size_t num_warps) {
  const bool packs = can_pack(call.width, call.dy, call.h, call.dweight, call.dbias);
  const std::size_t taken = std::size_t{kWarp} * (packs ? kPack : 1);
  const std::size_t parts = num_norm_sums(call.rows) * ((call.width + taken - 1) / taken);
  for (std::size_t part = warp; part < parts; part += num_warps)
    packs ? norm_columns<kPack>(call, part) : norm_columns<1>(call, part);
}

}  // namespace cuda
}  // namespace trireme::inline v0::kernel
