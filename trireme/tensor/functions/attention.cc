// Attention over query, key and value as one linear layer gives them, [B, T, 3, H, D], without
// copies into a per-head layout. Each head runs in blocks of query rows; causal attention computes
// only the blocks on and below the diagonal of the T x T scores. Short sequences keep their
// probabilities for backward. Long ones (T > kKeptProbabilities), and all under a
// ProbabilitiesScope that says so, recompute them block by block.
#include <algorithm>
#include <cmath>
#include <utility>

#include "trireme/kernel/elementwise.h"
#include "trireme/tensor/functions/autograd.h"
#include "trireme/tensor/functions/functions.h"
#include "trireme/tensor/functions/implementations.h"
#include "trireme/tensor/products/gemm.h"

namespace trireme::inline v0::tensor {
namespace {

struct Shape {
  std::int64_t batch, length, width, heads;
  bool causal;
  std::int64_t depth() const { return width / heads; }
  double scale() const { return 1.0 / std::sqrt(static_cast<double>(depth())); }
  bool keeps() const { return length <= kKeptProbabilities; }
  /// The number of keys that a block of query rows sees.
  std::int64_t keys(std::int64_t first, std::int64_t rows) const {
    return causal ? first + rows : length;
  }
};
Shape shape_of(const at::Tensor& qkv, std::int64_t heads, bool causal) {
  return {qkv.size(0), qkv.size(1), qkv.size(2) / 3, heads, causal};
}

template <class T>
constexpr std::int64_t kRows = kIsHalf<T> ? 128 : 64;  // query rows of a block

// One head of one sequence: pointers to its rows, and scratch memory for a block.
template <class T>
struct Head {
  const Shape& shape;
  const T *q, *k, *v;  // rows 3 * width apart
  std::int64_t stride;
  Stat<T>* scores;  // [kRows, length]
  Operand<T> query(std::int64_t row) const { return {q + row * stride, stride}; }

  /// Writes p [rows, keys], with rows `length` apart, for the query rows from `first` on.
  void probabilities(std::int64_t first, std::int64_t rows, T* p) const {
    const std::int64_t keys = shape.keys(first, rows);
    Stat<T>* out = scores;
    if constexpr (std::is_same_v<T, Stat<T>>) out = p;
    gemm(Gemm<T>{rows, keys, shape.depth(), query(first), Operand<T>{k, stride, Form::Transposed},
                 out, shape.length});
    const std::size_t stride_p = unsign(shape.length), all = unsign(keys);
    if (shape.causal) {
      kernel::transformer<T>().causal_softmax(out, stride_p, p, stride_p, unsign(first),
                                              unsign(rows), all, shape.scale());
      return;
    }
    // A row that sees all keys is computed as the last row of a causal matrix.
    for (std::int64_t row = 0; row < rows; ++row)
      kernel::transformer<T>().causal_softmax(out + row * shape.length, stride_p,
                                              p + row * shape.length, stride_p, all - 1, 1, all,
                                              shape.scale());
  }
};

// For bf16 and fp16 the product is computed in fp32 and then converted.
template <class T>
void product(std::int64_t m, std::int64_t n, std::int64_t k, Operand<T> a, Operand<T> b,
             Stat<T>* scratch, T* c, std::int64_t c_stride) {
  if constexpr (std::is_same_v<T, Stat<T>>) {
    gemm(Gemm<T>{m, n, k, a, b, c, c_stride});
  } else {
    gemm(Gemm<T>{m, n, k, a, b, scratch, n});
    for (std::int64_t row = 0; row < m; ++row) {
      kernel::convert(scratch + row * n, c + row * c_stride, unsign(n));
    }
  }
}

template <class T>
void run_forward(const Shape& shape, const T* qkv, T* out, T* kept) {
  const auto length = shape.length, depth = shape.depth(), width = shape.width;
  const auto type = c10::CppTypeToScalarType<Stat<T>>::value;
  const at::Tensor scores = empty({kRows<T> * length}, type),
                   wide = empty({kRows<T> * depth}, type);
  const at::Tensor block = kept != nullptr
                               ? at::Tensor()
                               : empty({kRows<T> * length * std::int64_t{sizeof(T)}}, at::kByte);
  for (std::int64_t b = 0; b < shape.batch; ++b) {
    for (std::int64_t h = 0; h < shape.heads; ++h) {
      const T* q = qkv + b * length * 3 * width + h * depth;
      const Head<T> head{shape, q, q + width, q + 2 * width, 3 * width, data_of<Stat<T>>(scores)};
      for (std::int64_t first = 0; first < length; first += kRows<T>) {
        const std::int64_t rows = std::min(kRows<T>, length - first);
        T* p = kept != nullptr ? kept + ((b * shape.heads + h) * length + first) * length
                               : data_of<T>(block);
        head.probabilities(first, rows, p);
        product<T>(rows, depth, shape.keys(first, rows), {p, length}, {head.v, head.stride},
                   data_of<Stat<T>>(wide), out + (b * length + first) * width + h * depth, width);
      }
    }
  }
}

// Gradients of one head's keys and values, summed over query blocks in fp32 or wider.
template <class T>
struct KeyValueSums {
  Stat<T>*dk, *dv;  // [length, depth], rows `stride` apart
  std::int64_t stride;
};

template <class T>
void backward_block(const Head<T>& head, const T* p, std::int64_t first, std::int64_t rows,
                    const T* dout, T* dq, const KeyValueSums<T>& sums, T* dscores, Stat<T>* wide,
                    bool accumulate) {
  const Shape& shape = head.shape;
  const std::int64_t keys = shape.keys(first, rows), length = shape.length, depth = shape.depth();
  const Operand<T> gradient{dout + first * shape.width, shape.width};
  gemm(Gemm<T>{keys, depth, rows, Operand<T>{p, length, Form::Transposed}, gradient, sums.dv,
               sums.stride, accumulate});
  gemm(Gemm<T>{rows, keys, depth, gradient, Operand<T>{head.v, head.stride, Form::Transposed},
               head.scores, length});
  kernel::transformer<T>().softmax_backward(p, unsign(length), head.scores, unsign(length), dscores,
                                            unsign(length), unsign(rows), unsign(keys),
                                            shape.scale());
  product<T>(rows, depth, keys, {dscores, length}, {head.k, head.stride}, wide,
             dq + first * head.stride, head.stride);
  gemm(Gemm<T>{keys, depth, rows, Operand<T>{dscores, length, Form::Transposed}, head.query(first),
               sums.dk, sums.stride, accumulate});
}

template <class T>
void run_backward(const Shape& shape, const T* qkv, const T* dout, const T* kept, T* dqkv) {
  constexpr bool kDirect = std::is_same_v<T, Stat<T>>;
  const auto length = shape.length, depth = shape.depth(), width = shape.width, stride = 3 * width;
  const auto type = c10::CppTypeToScalarType<Stat<T>>::value;
  const auto bytes = kRows<T> * length * std::int64_t{sizeof(T)};
  const at::Tensor scores = empty({kRows<T> * length}, type),
                   wide = empty({kRows<T> * depth}, type);
  const at::Tensor key_sums = empty({2, length, depth}, type);
  const at::Tensor dscores = empty({bytes}, at::kByte), block = empty({bytes}, at::kByte);
  for (std::int64_t index = 0; index < shape.batch * shape.heads; ++index) {
    const std::int64_t b = index / shape.heads, h = index % shape.heads;
    const std::int64_t start = b * length * stride + h * depth;
    const T* q = qkv + start;
    T* dq = dqkv + start;
    const Head<T> head{shape, q, q + width, q + 2 * width, stride, data_of<Stat<T>>(scores)};
    KeyValueSums<T> sums{data_of<Stat<T>>(key_sums), data_of<Stat<T>>(key_sums) + length * depth,
                         depth};
    if constexpr (kDirect) sums = {dq + width, dq + 2 * width, stride};
    // From the last block to the first: the last reaches all keys and overwrites; the others add.
    const std::int64_t blocks = (length + kRows<T> - 1) / kRows<T>;
    for (std::int64_t i = blocks - 1; i >= 0; --i) {
      const std::int64_t first = i * kRows<T>, rows = std::min(kRows<T>, length - first);
      const T* p = kept != nullptr ? kept + (index * length + first) * length : data_of<T>(block);
      if (kept == nullptr) head.probabilities(first, rows, data_of<T>(block));
      backward_block<T>(head, p, first, rows, dout + b * length * width + h * depth, dq, sums,
                        data_of<T>(dscores), data_of<Stat<T>>(wide), i != blocks - 1);
    }
    if constexpr (!kDirect) {
      for (std::int64_t row = 0; row < length; ++row) {
        kernel::convert(sums.dk + row * depth, dq + width + row * stride, unsign(depth));
        kernel::convert(sums.dv + row * depth, dq + 2 * width + row * stride, unsign(depth));
      }
    }
  }
}

class AttentionFunction : public torch::autograd::Function<AttentionFunction> {
 public:
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& qkv, std::int64_t heads,
                            bool causal, bool training) {
    TRIREME_CHECK(qkv.dim() == 3);
    TRIREME_CHECK(qkv.size(2) % (3 * heads) == 0);
    const at::Tensor packed = qkv.contiguous();
    const Shape shape = shape_of(packed, heads, causal);
    const at::Tensor out = empty({shape.batch, shape.length, shape.width}, qkv.scalar_type());
    at::Tensor kept;
    if (training && shape.keeps()) {
      kept = empty({shape.batch, heads, shape.length, shape.length}, qkv.scalar_type());
    }
    for_type(qkv.scalar_type(), [&]<class T>() {
      run_forward<T>(shape, data_of<T>(packed), data_of<T>(out), data_of<T>(kept));
    });
    ctx->save_for_backward({packed, kept});
    ctx->saved_data["heads"] = heads;
    ctx->saved_data["causal"] = causal;
    return out;
  }

  static variable_list backward(AutogradContext* ctx, variable_list gradients) {
    refuse_second_derivative();
    const auto saved = ctx->get_saved_variables();
    const at::Tensor &qkv = saved[0], dout = gradients[0].contiguous();
    const at::Tensor dqkv = empty(qkv.sizes(), qkv.scalar_type());
    const Shape shape =
        shape_of(qkv, ctx->saved_data["heads"].toInt(), ctx->saved_data["causal"].toBool());
    for_type(qkv.scalar_type(), [&]<class T>() {
      run_backward<T>(shape, data_of<T>(qkv), data_of<T>(dout), data_of<T>(saved[1]),
                      data_of<T>(dqkv));
    });
    return {dqkv, Variable(), Variable(), Variable()};
  }
};

thread_local bool keeps_probabilities = true;

}  // namespace

ProbabilitiesScope::ProbabilitiesScope(bool keep) : ScopedValue(keeps_probabilities, keep) {}

at::Tensor attention(const at::Tensor& qkv, std::int64_t heads, bool causal) {
  if (!by_kernels(qkv)) return libtorch::attention(qkv, heads, causal);
  const bool training = at::GradMode::is_enabled() && qkv.requires_grad();
  return AttentionFunction::apply(qkv, heads, causal, training && keeps_probabilities);
}

}  // namespace trireme::inline v0::tensor
