// The fp64 forms of transformer.h's kernels: plain loops, for comparisons with PyTorch and for
// gradient checks by finite differences. Included by transformer.cc only.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <utility>

#include "trireme/kernel/transformer.h"

namespace trireme::inline v0::kernel {
namespace f64 {

inline const double kRootTwoOverPi = std::sqrt(2.0 / std::numbers::pi);
inline constexpr double kCubic = 0.044715;

inline double sigmoid_2u(double x) {
  return 1.0 / (1.0 + std::exp(-2.0 * kRootTwoOverPi * (x + kCubic * x * x * x)));
}

// g(x) and its derivative. For a large |x| a term of the derivative vanishes, whose powers of x
// would overflow.
inline std::pair<double, double> gate_at(Gate gate, double x) {
  const bool silu = gate == Gate::Silu;
  const double s = silu ? 1.0 / (1.0 + std::exp(-x)) : sigmoid_2u(x);
  const double v = std::clamp(x, -1e4, 1e4);  // a NaN stays
  const double slope = silu ? 1.0 : 2.0 * kRootTwoOverPi * (1.0 + 3.0 * kCubic * v * v);
  return {x * s, s + v * s * (1.0 - s) * slope};
}

inline void gelu(const double* x, double* y, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) y[i] = x[i] * sigmoid_2u(x[i]);
}

inline void gelu_backward(const double* x, const double* dy, double* dx, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    dx[i] = dy[i] * gate_at(Gate::Gelu, x[i]).second;
  }
}

inline void gated(Gate gate, const double* x, double* y, std::size_t rows, std::size_t width) {
  for (std::size_t row = 0; row < rows; ++row, x += 2 * width, y += width) {
    for (std::size_t i = 0; i < width; ++i) y[i] = gate_at(gate, x[i]).first * x[width + i];
  }
}

inline void gated_backward(Gate gate, const double* x, const double* dy, double* dx,
                           std::size_t rows, std::size_t width) {
  for (std::size_t row = 0; row < rows; ++row, x += 2 * width, dx += 2 * width, dy += width) {
    for (std::size_t i = 0; i < width; ++i) {
      const auto [value, derivative] = gate_at(gate, x[i]);
      dx[i] = dy[i] * x[width + i] * derivative;
      dx[width + i] = dy[i] * value;
    }
  }
}

inline void layer_norm(const NormForward<double>& c) {
  for (std::size_t row = 0; row < c.rows; ++row) {
    const double* h = c.x + row * c.width;
    if (c.update != nullptr) {
      double* sum = c.h + row * c.width;
      for (std::size_t i = 0; i < c.width; ++i) sum[i] = h[i] + c.update[row * c.width + i];
      h = sum;
    }
    double mean = 0, variance = 0;
    for (std::size_t i = 0; i < c.width; ++i) mean += h[i];
    mean /= static_cast<double>(c.width);
    for (std::size_t i = 0; i < c.width; ++i) variance += (h[i] - mean) * (h[i] - mean);
    const double rstd = 1.0 / std::sqrt(variance / static_cast<double>(c.width) + c.epsilon);
    for (std::size_t i = 0; i < c.width; ++i) {
      c.y[row * c.width + i] =
          (h[i] - mean) * rstd * c.weight[i] + (c.bias != nullptr ? c.bias[i] : 0.0);
    }
    c.mean[row] = mean;
    c.rstd[row] = rstd;
  }
}

inline void layer_norm_backward(const NormBackward<double>& c) {
  for (std::size_t row = 0; row < c.rows; ++row) {
    const double *dy = c.dy + row * c.width, *h = c.h + row * c.width;
    const double mean = c.mean[row], rstd = c.rstd[row];
    double shift = 0, slope = 0;
    for (std::size_t i = 0; i < c.width; ++i) {
      const double xhat = (h[i] - mean) * rstd;
      shift += dy[i] * c.weight[i];
      slope += dy[i] * c.weight[i] * xhat;
      c.dweight[i] += dy[i] * xhat;
      if (c.dbias != nullptr) c.dbias[i] += dy[i];
    }
    shift /= static_cast<double>(c.width);
    slope /= static_cast<double>(c.width);
    for (std::size_t i = 0; i < c.width; ++i) {
      const std::size_t at = row * c.width + i;
      double dx = rstd * (dy[i] * c.weight[i] - shift - (h[i] - mean) * rstd * slope);
      if (c.dstream != nullptr) dx += c.dstream[at];
      c.dx[at] = dx;
      if (c.dupdate != nullptr) c.dupdate[at] = dx;
    }
  }
}

inline void causal_softmax(const double* scores, std::size_t scores_stride, double* p,
                           std::size_t p_stride, std::size_t first, std::size_t rows,
                           std::size_t width, double scale) {
  for (std::size_t row = 0; row < rows; ++row) {
    const double* in = scores + row * scores_stride;
    double* out = p + row * p_stride;
    const std::size_t count = first + row + 1;
    const double top = *std::max_element(in, in + count);
    double total = 0;
    for (std::size_t i = 0; i < count; ++i) total += out[i] = std::exp((in[i] - top) * scale);
    for (std::size_t i = 0; i < count; ++i) out[i] /= total;
    std::fill(out + count, out + width, 0.0);
  }
}

inline void softmax_backward(const double* p, std::size_t p_stride, const double* dp,
                             std::size_t dp_stride, double* ds, std::size_t ds_stride,
                             std::size_t rows, std::size_t width, double scale) {
  for (std::size_t row = 0; row < rows; ++row) {
    double dot = 0;
    for (std::size_t i = 0; i < width; ++i) dot += p[row * p_stride + i] * dp[row * dp_stride + i];
    for (std::size_t i = 0; i < width; ++i) {
      ds[row * ds_stride + i] = scale * p[row * p_stride + i] * (dp[row * dp_stride + i] - dot);
    }
  }
}

inline void row_maxima(const double* scores, std::size_t scores_stride, double* maxima,
                       std::size_t first, std::size_t rows, std::size_t width, double scale) {
  for (std::size_t row = 0; row < rows; ++row) {
    const double* in = scores + row * scores_stride;
    maxima[row] = scale * *std::max_element(in, in + std::min(first + row + 1, width));
  }
}

inline void shifted_exponents(const double* scores, std::size_t scores_stride, double* p,
                              std::size_t p_stride, const double* shift, double* sums,
                              std::size_t first, std::size_t rows, std::size_t width,
                              double scale) {
  for (std::size_t row = 0; row < rows; ++row) {
    const double* in = scores + row * scores_stride;
    double* out = p + row * p_stride;
    const std::size_t count = std::min(first + row + 1, width);
    double total = 0;
    for (std::size_t i = 0; i < count; ++i) {
      total += out[i] = std::exp(in[i] * scale - shift[row]);
    }
    std::fill(out + count, out + width, 0.0);
    if (sums != nullptr) sums[row] = total;
  }
}

inline void softmax_part_backward(const double* p, std::size_t p_stride, const double* dp,
                                  std::size_t dp_stride, const double* dots, double* ds,
                                  std::size_t ds_stride, std::size_t rows, std::size_t width,
                                  double scale) {
  for (std::size_t row = 0; row < rows; ++row) {
    for (std::size_t i = 0; i < width; ++i) {
      ds[row * ds_stride + i] =
          scale * p[row * p_stride + i] * (dp[row * dp_stride + i] - dots[row]);
    }
  }
}

inline void row_exponents(const double* logits, double* largest, double* sums, std::size_t rows,
                          std::size_t width) {
  for (std::size_t row = 0; row < rows; ++row) {
    const double* in = logits + row * width;
    largest[row] = *std::max_element(in, in + width);
    sums[row] = 0;
    for (std::size_t i = 0; i < width; ++i) sums[row] += std::exp(in[i] - largest[row]);
  }
}

inline void scaled_softmax(const double* logits, const double* logsumexp, double* out,
                           std::size_t rows, std::size_t width, double scale) {
  for (std::size_t i = 0; i < rows * width; ++i) {
    out[i] = scale * std::exp(logits[i] - logsumexp[i / width]);
  }
}

inline void add(const double* a, const double* b, double* out, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) out[i] = a[i] + b[i];
}

}  // namespace f64
}  // namespace trireme::inline v0::kernel
