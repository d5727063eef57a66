#include "trireme/kernel/transformer.h"

#include <vector>

#include "trireme/kernel/float16.h"
#include "trireme/kernel/simd.h"
#include "trireme/kernel/transformer_f64.h"

namespace trireme::inline v0::kernel {
namespace {

constexpr TransformerKernels<double> kF64 = {f64::gelu,
                                             f64::gelu_backward,
                                             f64::gated,
                                             f64::gated_backward,
                                             f64::layer_norm,
                                             f64::layer_norm_backward,
                                             f64::causal_softmax,
                                             f64::softmax_backward,
                                             f64::row_maxima,
                                             f64::shifted_exponents,
                                             f64::softmax_part_backward,
                                             f64::row_exponents,
                                             f64::scaled_softmax,
                                             f64::add};

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
const TransformerKernels<T>& transformer() noexcept {
  if constexpr (std::is_same_v<T, double>) {
    return kF64;
  } else {
    return simd().transformer<T>();
  }
}

template <class T>
double cross_entropy(const T* logits, const std::int64_t* targets, Stat<T>* logsumexp,
                     std::size_t rows, std::size_t width) {
  std::vector<Stat<T>> largest(rows);
  transformer<T>().row_exponents(logits, largest.data(), logsumexp, rows, width);
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
    transformer<T>().scaled_softmax(in, logsumexp + row, out, 1, width, factor);
    set<T>(out[target], factor * (share - Stat<T>{1}));
  }
}

#define TRIREME_INSTANTIATE(T)                                                               \
  template const TransformerKernels<T>& transformer<T>() noexcept;                           \
  template double cross_entropy<T>(const T*, const std::int64_t*, Stat<T>*, std::size_t,     \
                                   std::size_t);                                             \
  template void cross_entropy_backward<T>(const T*, const std::int64_t*, const Stat<T>*, T*, \
                                          std::size_t, std::size_t, double)
TRIREME_INSTANTIATE(float);
TRIREME_INSTANTIATE(BFloat16);
TRIREME_INSTANTIATE(Float16);
TRIREME_INSTANTIATE(double);
#undef TRIREME_INSTANTIATE

}  // namespace trireme::inline v0::kernel
