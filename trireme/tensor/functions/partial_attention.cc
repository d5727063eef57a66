// Computes blocks of query rows by keys; in causal parts only those on and below the diagonal.
#include "trireme/tensor/functions/partial_attention.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "trireme/kernel/transformer.h"
#include "trireme/tensor/functions/implementations.h"
#include "trireme/tensor/functions/typed.h"
#include "trireme/tensor/products/gemm.h"

namespace trireme::inline v0::tensor {
namespace {

constexpr std::int64_t kPartialRows = 64, kKeys = 1024;
static_assert(kKeys % kPartialRows == 0);  // a block of keys starts on the diagonal or left of it

// Rows of one head of one sequence.
template <class T>
struct HeadRows {
  T* data;
  std::int64_t stride;
  T* row(std::int64_t i) const { return data + i * stride; }
  Operand<T> operand(std::int64_t i, Form form = Form::Plain) const {
    return {row(i), stride, form};
  }
};
template <class T>
HeadRows<T> head_rows(const Columns& columns, std::int64_t b, std::int64_t h, std::int64_t depth) {
  const std::int64_t length = columns.rows.size(1), stride = columns.rows.size(2);
  return {data_of<T>(columns.rows) + b * length * stride + columns.first + h * depth, stride};
}

struct Block {
  std::int64_t query, rows;    // from this query on
  std::int64_t key, keys;      // from this key on
  std::int64_t last_of_first;  // the last key in the block that the block's first row sees
};

// Calls step(Block) for each block of scores that has a visible key.
template <class Step>
void each_block(const Sight& sight, std::int64_t length, Step step) {
  for (std::int64_t query = sight.first_query; query < length; query += kPartialRows) {
    const std::int64_t rows = std::min(kPartialRows, length - query);
    const std::int64_t end = sight.causal ? std::min(sight.keys, query + rows) : sight.keys;
    for (std::int64_t key = 0; key < end; key += kKeys) {
      const std::int64_t keys = std::min(kKeys, end - key);
      step(Block{query, rows, key, keys, sight.causal ? query - key : keys - 1});
    }
  }
}

void check_part(const Columns& query, const Columns& key, const Columns& value,
                const Sight& sight) {
  for (const Columns* part : {&key, &value}) {
    TRIREME_CHECK(part->rows.is_contiguous());
    TRIREME_CHECK(part->rows.size(0) == query.rows.size(0));
    TRIREME_CHECK(part->rows.size(1) >= sight.keys);
  }
  if (sight.causal) TRIREME_CHECK(sight.first_query == 0);
}

double scale_of(std::int64_t depth) { return 1.0 / std::sqrt(static_cast<double>(depth)); }

// One head of one sequence, forward.
template <class T>
struct HeadForward {
  HeadRows<T> query, key, value;
  HeadRows<Stat<T>> sums;
  Stat<T>*maxima, *totals;
  std::int64_t depth;
  Stat<T>* scores;  // [kPartialRows, kKeys]
  T* weights;       // [kPartialRows, kKeys]; may be scores

  void add(const Block& block) const {
    std::array<Stat<T>, kPartialRows> largest, added;
    gemm(Gemm<T>{block.rows, block.keys, depth, query.operand(block.query),
                 key.operand(block.key, Form::Transposed), scores, kKeys});
    const auto first = unsign(block.last_of_first), rows = unsign(block.rows),
               keys = unsign(block.keys);
    kernel::transformer<T>().row_maxima(scores, kKeys, largest.data(), first, rows, keys,
                                        scale_of(depth));
    for (std::int64_t i = 0; i < block.rows; ++i) {
      Stat<T>& maximum = maxima[block.query + i];
      const Stat<T> before = maximum;
      maximum = std::max(before, largest[unsign(i)]);
      if (maximum == before) continue;
      const Stat<T> shrink = std::exp(before - maximum);  // 0 for the first part
      totals[block.query + i] *= shrink;
      Stat<T>* sum = sums.row(block.query + i);
      for (std::int64_t c = 0; c < depth; ++c) sum[c] *= shrink;
    }
    kernel::transformer<T>().shifted_exponents(scores, kKeys, weights, kKeys, maxima + block.query,
                                               added.data(), first, rows, keys, scale_of(depth));
    for (std::int64_t i = 0; i < block.rows; ++i) totals[block.query + i] += added[unsign(i)];
    gemm(Gemm<T>{block.rows, depth, block.keys, Operand<T>{weights, kKeys},
                 value.operand(block.key), sums.row(block.query), sums.stride, true});
  }
};

// One head of one sequence, backward.
template <class T>
struct HeadBackward {
  HeadRows<T> query, key, value, gradient;
  HeadRows<Stat<T>> dquery, dkey, dvalue;
  const Stat<T>*logsumexp, *dots;
  std::int64_t depth;
  Stat<T>* scores;       // [kPartialRows, kKeys], scores and then the weights' gradients
  T *weights, *dscores;  // [kPartialRows, kKeys]

  void add(const Block& block) const {
    const auto rows = unsign(block.rows), keys = unsign(block.keys);
    const double scale = scale_of(depth);
    gemm(Gemm<T>{block.rows, block.keys, depth, query.operand(block.query),
                 key.operand(block.key, Form::Transposed), scores, kKeys});
    kernel::transformer<T>().shifted_exponents(scores, kKeys, weights, kKeys,
                                               logsumexp + block.query, nullptr,
                                               unsign(block.last_of_first), rows, keys, scale);
    gemm(Gemm<T>{block.keys, depth, block.rows, Operand<T>{weights, kKeys, Form::Transposed},
                 gradient.operand(block.query), dvalue.row(block.key), dvalue.stride, true});
    gemm(Gemm<T>{block.rows, block.keys, depth, gradient.operand(block.query),
                 value.operand(block.key, Form::Transposed), scores, kKeys});
    kernel::transformer<T>().softmax_part_backward(
        weights, kKeys, scores, kKeys, dots + block.query, dscores, kKeys, rows, keys, scale);
    gemm(Gemm<T>{block.rows, depth, block.keys, Operand<T>{dscores, kKeys}, key.operand(block.key),
                 dquery.row(block.query), dquery.stride, true});
    gemm(Gemm<T>{block.keys, depth, block.rows, Operand<T>{dscores, kKeys, Form::Transposed},
                 query.operand(block.query), dkey.row(block.key), dkey.stride, true});
  }
};

void attend_part(const AttentionPart& part, const at::Tensor& sums, const at::Tensor& maxima,
                 const at::Tensor& totals) {
  const std::int64_t batch = sums.size(0), length = sums.size(1), depth = sums.size(2) / part.heads;
  for_type(part.query.rows.scalar_type(), [&]<class T>() {
    const at::Tensor scores = empty({kPartialRows, kKeys}, sums.scalar_type());
    const at::Tensor weights = std::is_same_v<T, Stat<T>>
                                   ? scores
                                   : empty({kPartialRows, kKeys}, part.query.rows.scalar_type());
    for (std::int64_t index = 0; index < batch * part.heads; ++index) {
      const std::int64_t b = index / part.heads, h = index % part.heads;
      const HeadForward<T> head{.query = head_rows<T>(part.query, b, h, depth),
                                .key = head_rows<T>(part.key, b, h, depth),
                                .value = head_rows<T>(part.value, b, h, depth),
                                .sums = head_rows<Stat<T>>({sums}, b, h, depth),
                                .maxima = data_of<Stat<T>>(maxima) + index * length,
                                .totals = data_of<Stat<T>>(totals) + index * length,
                                .depth = depth,
                                .scores = data_of<Stat<T>>(scores),
                                .weights = data_of<T>(weights)};
      each_block(part.sight, length, [&](const Block& block) { head.add(block); });
    }
  });
}

void attend_part_backward(const AttentionPart& part, const at::Tensor& gradient,
                          const at::Tensor& logsumexp, const at::Tensor& dots,
                          const at::Tensor& query_gradient, const Columns& key_gradient,
                          const Columns& value_gradient) {
  const std::int64_t batch = gradient.size(0), length = gradient.size(1),
                     depth = gradient.size(2) / part.heads;
  for_type(gradient.scalar_type(), [&]<class T>() {
    const at::Tensor scores = empty({kPartialRows, kKeys}, logsumexp.scalar_type()),
                     weights = empty({2, kPartialRows, kKeys}, gradient.scalar_type());
    for (std::int64_t index = 0; index < batch * part.heads; ++index) {
      const std::int64_t b = index / part.heads, h = index % part.heads;
      const HeadBackward<T> head{.query = head_rows<T>(part.query, b, h, depth),
                                 .key = head_rows<T>(part.key, b, h, depth),
                                 .value = head_rows<T>(part.value, b, h, depth),
                                 .gradient = head_rows<T>({gradient}, b, h, depth),
                                 .dquery = head_rows<Stat<T>>({query_gradient}, b, h, depth),
                                 .dkey = head_rows<Stat<T>>(key_gradient, b, h, depth),
                                 .dvalue = head_rows<Stat<T>>(value_gradient, b, h, depth),
                                 .logsumexp = data_of<Stat<T>>(logsumexp) + index * length,
                                 .dots = data_of<Stat<T>>(dots) + index * length,
                                 .depth = depth,
                                 .scores = data_of<Stat<T>>(scores),
                                 .weights = data_of<T>(weights),
                                 .dscores = data_of<T>(weights) + kPartialRows * kKeys};
      each_block(part.sight, length, [&](const Block& block) { head.add(block); });
    }
  });
}

}  // namespace

PartialAttention::PartialAttention(const Columns& query, std::int64_t heads, std::int64_t width)
    : query_(query), heads_(heads), width_(width) {
  TRIREME_CHECK(query.rows.is_contiguous());
  TRIREME_CHECK(width % heads == 0);
  const std::int64_t batch = query.rows.size(0), length = query.rows.size(1);
  const auto options = query.rows.options().dtype(stat_type(query.rows.scalar_type()));
  sums_ = at::zeros({batch, length, width}, options);
  maxima_ = at::full({batch, heads, length}, -std::numeric_limits<double>::infinity(), options);
  totals_ = at::zeros({batch, heads, length}, options);
}

void PartialAttention::add(const Columns& key, const Columns& value, const Sight& sight) {
  check_part(query_, key, value, sight);
  const NoAutocast types_as_given;
  (by_kernels(query_.rows) ? attend_part : libtorch::attend_part)(
      {query_, key, value, sight, heads_}, sums_, maxima_, totals_);
}

at::Tensor PartialAttention::output() const {
  const at::Tensor totals = totals_.transpose(1, 2).unsqueeze(-1);  // [B, S, H, 1]
  return sums_.unflatten(-1, {heads_, width_ / heads_})
      .div(totals)
      .flatten(2)
      .to(query_.rows.scalar_type());
}

at::Tensor PartialAttention::logsumexp() const { return maxima_ + totals_.log(); }

PartialAttentionBackward::PartialAttentionBackward(const Columns& query, std::int64_t heads,
                                                   const at::Tensor& output,
                                                   const at::Tensor& logsumexp,
                                                   const at::Tensor& gradient)
    : query_(query), heads_(heads), logsumexp_(logsumexp), gradient_(gradient.contiguous()) {
  const auto wide = logsumexp.scalar_type();
  dots_ = (gradient_.to(wide) * output.to(wide))
              .unflatten(-1, {heads, -1})
              .sum(-1)
              .transpose(1, 2)
              .contiguous();
  query_gradient_ = at::zeros(output.sizes(), logsumexp.options());
}

void PartialAttentionBackward::add(const Columns& key, const Columns& value, const Sight& sight,
                                   const Columns& key_gradient, const Columns& value_gradient) {
  check_part(query_, key, value, sight);
  check_part(query_, key_gradient, value_gradient, sight);
  const NoAutocast types_as_given;
  (by_kernels(query_.rows) ? attend_part_backward : libtorch::attend_part_backward)(
      {query_, key, value, sight, heads_}, gradient_, logsumexp_, dots_, query_gradient_,
      key_gradient, value_gradient);
}

}  // namespace trireme::inline v0::tensor
