#include "trireme/kernel/transformer.h"

#include <vector>

#include "trireme/kernel/float16.h"
#include "trireme/kernel/simd.h"
#include "trireme/kernel/transformer_f64.h"

namespace trireme::inline v0::kernel {
namespace {

void add_f64(const double* a, const double* b, double* out, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) out[i] = a[i] + b[i];
}

constexpr TransformerTable<double> kF64 = {f64::gelu,
                                           f64::gelu_backward,
                                           f64::gated,
                                           f64::gated_backward,
                                           f64::layer_norm,
                                           f64::layer_norm_backward,
                                           f64::causal_softmax,
                                           f64::softmax_backward,
                                           f64::shifted_exponents,
                                           f64::softmax_part_backward,
                                           f64::row_exponents,
                                           f64::scaled_softmax,
                                           add_f64};

template <class T>
const TransformerTable<T>& table() noexcept {
  if constexpr (std::is_same_v<T, double>) {
    return kF64;
  } else {
    return simd().transformer<T>();
  }
}

template <class T>
void set(T& slot, Stat<T> value) {
  if constexpr (!std::is_same_v<T, Stat<T>>) {
    convert(&value, &slot, 1);
  } else {
    slot = value;
  }
}

}  // namespace

template <class T>
void gelu(const T* x, T* y, std::size_t count) {
  table<T>().gelu(x, y, count);
}

template <class T>
void gelu_backward(const T* x, const T* dy, T* dx, std::size_t count) {
  table<T>().gelu_grad(x, dy, dx, count);
}

template <class T>
void gated(Gate gate, const T* x, T* y, std::size_t rows, std::size_t width) {
  table<T>().gated(gate, x, y, rows, width);
}

template <class T>
void gated_backward(Gate gate, const T* x, const T* dy, T* dx, std::size_t rows,
                    std::size_t width) {
  table<T>().gated_grad(gate, x, dy, dx, rows, width);
}

template <class T>
void layer_norm(const NormForward<T>& call) {
  table<T>().norm(call);
}

template <class T>
void layer_norm_backward(const NormBackward<T>& call) {
  table<T>().norm_grad(call);
}

template <class T>
void causal_softmax(const Stat<T>* scores, std::size_t scores_stride, T* p, std::size_t p_stride,
                    std::size_t first, std::size_t rows, std::size_t width, double scale) {
  table<T>().softmax(scores, scores_stride, p, p_stride, first, rows, width, scale);
}

template <class T>
void softmax_backward(const T* p, std::size_t p_stride, const Stat<T>* dp, std::size_t dp_stride,
                      T* dscores, std::size_t dscores_stride, std::size_t rows, std::size_t width,
                      double scale) {
  table<T>().softmax_grad(p, p_stride, dp, dp_stride, dscores, dscores_stride, rows, width, scale);
}

template <class T>
void row_maxima(const Stat<T>* scores, std::size_t scores_stride, Stat<T>* maxima,
                std::size_t first, std::size_t rows, std::size_t width, double scale) {
  if constexpr (std::is_same_v<T, double>) {
    f64::row_maxima(scores, scores_stride, maxima, first, rows, width, scale);
  } else {
    simd().row_maxima(scores, scores_stride, maxima, first, rows, width, scale);
  }
}

template <class T>
void shifted_exponents(const Stat<T>* scores, std::size_t scores_stride, T* p, std::size_t p_stride,
                       const Stat<T>* shift, Stat<T>* sums, std::size_t first, std::size_t rows,
                       std::size_t width, double scale) {
  table<T>().shifted_exponents(scores, scores_stride, p, p_stride, shift, sums, first, rows, width,
                               scale);
}

template <class T>
void softmax_part_backward(const T* p, std::size_t p_stride, const Stat<T>* dp,
                           std::size_t dp_stride, const Stat<T>* dots, T* dscores,
                           std::size_t dscores_stride, std::size_t rows, std::size_t width,
                           double scale) {
  table<T>().softmax_part_grad(p, p_stride, dp, dp_stride, dots, dscores, dscores_stride, rows,
                               width, scale);
}

template <class T>
double cross_entropy(const T* logits, const std::int64_t* targets, Stat<T>* logsumexp,
                     std::size_t rows, std::size_t width) {
  std::vector<Stat<T>> largest(rows);
  table<T>().row_exponents(logits, largest.data(), logsumexp, rows, width);
  double total = 0;
  for (std::size_t row = 0; row < rows; ++row) {
    const double whole = double{largest[row]} + std::log(double{logsumexp[row]});
    logsumexp[row] = static_cast<Stat<T>>(whole);
    if (targets[row] < 0) continue;
    total += whole - value_of(logits[row * width + static_cast<std::size_t>(targets[row])]);
  }
  return total;
}

template <class T>
void cross_entropy_backward(const T* logits, const std::int64_t* targets, const Stat<T>* logsumexp,
                            T* dlogits, std::size_t rows, std::size_t width, double scale) {
  const auto factor = static_cast<Stat<T>>(scale);
  for (std::size_t row = 0; row < rows; ++row) {
    const T* in = logits + row * width;
    T* out = dlogits + row * width;
    if (targets[row] < 0) {
      std::fill(out, out + width, T{});
      continue;
    }
    // The target's value is computed from fp32 terms, then rounded once.
    const auto target = static_cast<std::size_t>(targets[row]);
    const Stat<T> share = std::exp(value_of(in[target]) - logsumexp[row]);
    table<T>().scaled_softmax(in, logsumexp + row, out, 1, width, factor);
    set<T>(out[target], factor * (share - Stat<T>{1}));
  }
}

template <class T>
void add(const Stat<T>* a, const T* b, Stat<T>* out, std::size_t count) {
  table<T>().add(a, b, out, count);
}

#define TRIREME_INSTANTIATE(T)                                                                     \
  template void gelu<T>(const T*, T*, std::size_t);                                                \
  template void gelu_backward<T>(const T*, const T*, T*, std::size_t);                             \
  template void gated<T>(Gate, const T*, T*, std::size_t, std::size_t);                            \
  template void gated_backward<T>(Gate, const T*, const T*, T*, std::size_t, std::size_t);         \
  template void layer_norm<T>(const NormForward<T>&);                                              \
  template void layer_norm_backward<T>(const NormBackward<T>&);                                    \
  template void causal_softmax<T>(const Stat<T>*, std::size_t, T*, std::size_t, std::size_t,       \
                                  std::size_t, std::size_t, double);                               \
  template void softmax_backward<T>(const T*, std::size_t, const Stat<T>*, std::size_t, T*,        \
                                    std::size_t, std::size_t, std::size_t, double);                \
  template void row_maxima<T>(const Stat<T>*, std::size_t, Stat<T>*, std::size_t, std::size_t,     \
                              std::size_t, double);                                                \
  template void shifted_exponents<T>(const Stat<T>*, std::size_t, T*, std::size_t, const Stat<T>*, \
                                     Stat<T>*, std::size_t, std::size_t, std::size_t, double);     \
  template void softmax_part_backward<T>(const T*, std::size_t, const Stat<T>*, std::size_t,       \
                                         const Stat<T>*, T*, std::size_t, std::size_t,             \
                                         std::size_t, double);                                     \
  template double cross_entropy<T>(const T*, const std::int64_t*, Stat<T>*, std::size_t,           \
                                   std::size_t);                                                   \
  template void cross_entropy_backward<T>(const T*, const std::int64_t*, const Stat<T>*, T*,       \
                                          std::size_t, std::size_t, double);                       \
  template void add<T>(const Stat<T>*, const T*, Stat<T>*, std::size_t)
TRIREME_INSTANTIATE(float);
TRIREME_INSTANTIATE(BFloat16);
TRIREME_INSTANTIATE(Float16);
TRIREME_INSTANTIATE(double);
#undef TRIREME_INSTANTIATE

}  // namespace trireme::inline v0::kernel
