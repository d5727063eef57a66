// Row-wise and element-wise kernels of a transformer: GELU, layer norm, causal softmax,
// cross-entropy, and additions of mixed types.
//
// T is the activation type: float, BFloat16, Float16 (these two are computed in fp32) or double.
// Stat<T> is the type of streams, statistics and norm weights: fp32, or fp64 for double. All
// matrices are row-major. A row is summed in a fixed order, so its result depends on the row only;
// element-wise results do not depend on the position. fp64 forms are plain loops, the others are
// vectorised per instruction set. NaNs propagate. Stateless, thread safe; outputs may not overlap
// inputs unless a function allows it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "trireme/base/buffer.h"

namespace trireme::inline v0::kernel {

template <class T>
using Stat = std::conditional_t<std::is_same_v<T, double>, double, float>;

/// The gate of a gated MLP (Shazeer 2020, arXiv:2002.05202): y = g(a) * b, where a row of x is [a,
/// b]. g(a) is a sigmoid(a) (Silu) or GELU in its tanh form.
enum class Gate : std::uint8_t { Silu, Gelu };

/// Layer norm of `rows` rows of `width`. h = x + update if `update` is given (`h` is then written),
/// else h = x; y = (h - mean) * rstd * weight + bias. `bias` may be null.
template <class T>
struct NormForward {
  const Stat<T>*x = nullptr, *weight = nullptr, *bias = nullptr;
  const T* update = nullptr;
  Stat<T>* h = nullptr;
  T* y = nullptr;
  Stat<T>*mean = nullptr, *rstd = nullptr;  // [rows]
  std::size_t rows = 0, width = 0;
  double epsilon = 1e-5;
};

/// dx = the norm's input gradient, plus dstream if given. `dupdate` is dx in T; it may be null.
/// Weight and bias gradients are added to `dweight` and `dbias`; `dbias` may be null.
template <class T>
struct NormBackward {
  const T* dy = nullptr;
  const Stat<T>*dstream = nullptr, *h = nullptr, *weight = nullptr, *mean = nullptr,
        *rstd = nullptr;
  Stat<T>* dx = nullptr;
  T* dupdate = nullptr;
  Stat<T>*dweight = nullptr, *dbias = nullptr;
  std::size_t rows = 0, width = 0;
};

/// The kernels for one activation type.
template <class T>
struct TransformerKernels {
  /// y = x * sigmoid(2u), u = sqrt(2/pi) (x + 0.044715 x^3): GELU in its tanh form.
  void (*gelu)(const T* x, T* y, std::size_t count);
  /// dx = dy * gelu'(x); dx may be dy.
  void (*gelu_backward)(const T* x, const T* dy, T* dx, std::size_t count);
  /// x [rows, 2 width], y [rows, width].
  void (*gated)(Gate gate, const T* x, T* y, std::size_t rows, std::size_t width);
  /// dx [rows, 2 width] from x and dy [rows, width].
  void (*gated_backward)(Gate gate, const T* x, const T* dy, T* dx, std::size_t rows,
                         std::size_t width);
  void (*layer_norm)(const NormForward<T>& call);
  void (*layer_norm_backward)(const NormBackward<T>& call);

  /// Rows first ... first+rows-1 of a causal score matrix: p[r][c] = softmax over c <= first + r of
  /// scale * scores[r][c], and 0 for the columns after it, up to `width`. For float and double, p
  /// may be scores.
  void (*causal_softmax)(const Stat<T>* scores, std::size_t scores_stride, T* p,
                         std::size_t p_stride, std::size_t first, std::size_t rows,
                         std::size_t width, double scale);
  /// dscores = scale * p * (dp - sum_c p dp), `width` columns (p is 0 beyond the causal ones).
  void (*softmax_backward)(const T* p, std::size_t p_stride, const Stat<T>* dp,
                           std::size_t dp_stride, T* dscores, std::size_t dscores_stride,
                           std::size_t rows, std::size_t width, double scale);

  /// Pieces of a softmax whose columns are processed in parts (Milakov & Gimelshein 2018,
  /// arXiv:1805.02867). Row r sees the columns c <= first + r of `width`, at least one. maxima[r]
  /// is the largest score that row r sees, times scale (which is positive).
  void (*row_maxima)(const Stat<T>* scores, std::size_t scores_stride, Stat<T>* maxima,
                     std::size_t first, std::size_t rows, std::size_t width, double scale);
  /// p[r][c] = e^(scale * scores[r][c] - shift[r]), or 0 if r does not see c. `sums` receives the
  /// sum of each row before rounding to T; it may be null. For float and double, p may be scores.
  void (*shifted_exponents)(const Stat<T>* scores, std::size_t scores_stride, T* p,
                            std::size_t p_stride, const Stat<T>* shift, Stat<T>* sums,
                            std::size_t first, std::size_t rows, std::size_t width, double scale);
  /// softmax_backward() with dots[r], the sum of p dp of row r over all parts, already known:
  /// dscores = scale * p * (dp - dots[r]).
  void (*softmax_part_backward)(const T* p, std::size_t p_stride, const Stat<T>* dp,
                                std::size_t dp_stride, const Stat<T>* dots, T* dscores,
                                std::size_t dscores_stride, std::size_t rows, std::size_t width,
                                double scale);

  /// The largest value of each row, and the sum of e^(value - largest).
  void (*row_exponents)(const T* logits, Stat<T>* largest, Stat<T>* sums, std::size_t rows,
                        std::size_t width);
  /// scale * softmax, given each row's logsumexp.
  void (*scaled_softmax)(const T* logits, const Stat<T>* logsumexp, T* out, std::size_t rows,
                         std::size_t width, Stat<T> scale);
  /// out = a + b (out may be a).
  void (*add)(const Stat<T>* a, const T* b, Stat<T>* out, std::size_t count);
};
/// The kernels of isa().
template <class T>
const TransformerKernels<T>& transformer() noexcept;

/// The sum over rows of logsumexp(row) - row[target]; also stores every row's logsumexp. Rows with
/// a negative target are ignored. Targets must be below `width`.
template <class T>
double cross_entropy(const T* logits, const std::int64_t* targets, Stat<T>* logsumexp,
                     std::size_t rows, std::size_t width);
/// dlogits = scale * (softmax - onehot(target)); 0 for ignored rows. dlogits may be logits.
template <class T>
void cross_entropy_backward(const T* logits, const std::int64_t* targets, const Stat<T>* logsumexp,
                            T* dlogits, std::size_t rows, std::size_t width, double scale);

}  // namespace trireme::inline v0::kernel
