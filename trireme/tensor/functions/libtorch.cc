// The functions by LibTorch's operations (cuBLAS, cuDNN, flash attention on CUDA).
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "trireme/base/check.h"
#include "trireme/tensor/functions/implementations.h"
#include "trireme/tensor/functions/typed.h"

namespace trireme::inline v0::tensor {
namespace libtorch {
namespace {

std::optional<at::Tensor> in_type(const at::Tensor& tensor, at::ScalarType type) {
  return tensor.defined() ? std::optional<at::Tensor>(tensor.to(type)) : std::nullopt;
}

at::Tensor layer_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                      double epsilon, at::ScalarType out_type) {
  const auto stat = stat_type(x.scalar_type());
  return at::layer_norm(x.to(stat), {x.size(-1)}, in_type(weight, stat), in_type(bias, stat),
                        epsilon)
      .to(out_type);
}

}  // namespace

at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  return at::linear(x.to(weight.scalar_type()), weight, maybe(bias));
}

// GPUs' fast products need rows that begin a multiple of 16 bytes apart. For other vocabularies the
// weight gets more rows, of zeros, and their logits are cut off.
at::Tensor logits(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  constexpr std::int64_t kAligned = 8, kMultiple = 64;  // rows
  const std::int64_t rows = weight.size(0), filled = (rows + kMultiple - 1) / kMultiple * kMultiple;
  if (rows % kAligned == 0) return linear(x, weight, bias);
  const at::Tensor flat =
      linear(x.reshape({-1, x.size(-1)}), at::constant_pad_nd(weight, {0, 0, 0, filled - rows}),
             bias.defined() ? at::constant_pad_nd(bias, {0, filled - rows}) : bias);
  std::vector<std::int64_t> sizes = x.sizes().vec();
  sizes.back() = filled;
  return flat.view(sizes).narrow(-1, 0, rows);
}

at::Tensor gelu_tanh(const at::Tensor& x) { return at::gelu(x, "tanh"); }

at::Tensor linear_gelu(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  return gelu_tanh(linear(x, weight, bias));
}

at::Tensor gated(kernel::Gate gate, const at::Tensor& x) {
  TRIREME_CHECK(x.size(-1) % 2 == 0);
  const std::vector<at::Tensor> halves = x.chunk(2, -1);
  return (gate == kernel::Gate::Silu ? at::silu(halves[0]) : gelu_tanh(halves[0])) * halves[1];
}

std::pair<at::Tensor, at::Tensor> stream_layer_norm(const at::Tensor& stream,
                                                    const at::Tensor& weight,
                                                    const at::Tensor& bias, double epsilon,
                                                    at::ScalarType out_type) {
  return {stream, layer_norm(stream, weight, bias, epsilon, out_type)};
}

at::Tensor attention(const at::Tensor& qkv, std::int64_t heads, bool causal) {
  TRIREME_CHECK(qkv.dim() == 3);
  TRIREME_CHECK(qkv.size(2) % (3 * heads) == 0);
  const std::int64_t batch = qkv.size(0), length = qkv.size(1), width = qkv.size(2) / 3;
  // split(): its backward pass joins the three parts' gradients by one copy.
  std::vector<at::Tensor> parts = qkv.split(width, 2);
  for (at::Tensor& part : parts)
    part = part.view({batch, length, heads, width / heads}).transpose(1, 2);
  return at::scaled_dot_product_attention(parts[0], parts[1], parts[2], {}, 0.0, causal)
      .transpose(1, 2)
      .reshape({batch, length, width});
}

at::Tensor embedding(const at::Tensor& tokens, const at::Tensor& table,
                     const at::Tensor& position) {
  check_tokens(tokens, position);
  const auto stat = stat_type(table.scalar_type());
  const at::Tensor rows = at::embedding(table, tokens).to(stat);
  if (!position.defined()) return rows;
  return rows + position.narrow(0, 0, tokens.size(-1)).to(stat);
}

at::Tensor residual_add(const at::Tensor& stream, const at::Tensor& update) {
  TRIREME_CHECK(stream.sizes() == update.sizes());
  TRIREME_CHECK(stream.scalar_type() == stat_type(update.scalar_type()));
  return stream + update;
}

std::pair<at::Tensor, at::Tensor> add_layer_norm(const at::Tensor& stream, const at::Tensor& update,
                                                 const at::Tensor& weight, const at::Tensor& bias,
                                                 double epsilon) {
  const at::Tensor h = residual_add(stream, update);
  return {h, layer_norm(h, weight, bias, epsilon, update.scalar_type())};
}

// A target that is not below V stops the device: a check here would have to wait for the device.
at::Tensor cross_entropy_sum(const at::Tensor& logits, const at::Tensor& targets) {
  check_targets(logits, targets);
  constexpr std::int64_t kIgnored = -1;
  return at::cross_entropy_loss(
      logits.reshape({-1, logits.size(-1)}).to(stat_type(logits.scalar_type())),
      targets.reshape({-1}).clamp_min(kIgnored), {}, at::Reduction::Sum, kIgnored);
}

namespace {

// Query rows [first, first + count) of a part, [B, H, count, D], and the keys and values that any
// of them sees, [B, H, K, D]; all in the type of the sums.
struct PartRows {
  std::int64_t first, count;
  at::Tensor query, key, value;
  at::Tensor hidden;  // [count, K]: true where a query does not see a key; undefined: it sees all

  at::Tensor of(const at::Tensor& rows_BHS) const { return rows_BHS.narrow(2, first, count); }
  at::Tensor scores() const {
    const double scale = 1 / std::sqrt(static_cast<double>(query.size(3)));
    const at::Tensor all = at::matmul(query, key.transpose(2, 3)).mul_(scale);
    constexpr double kNone = -std::numeric_limits<double>::infinity();
    return hidden.defined() ? all.masked_fill_(hidden, kNone) : all;
  }
};

// The columns, `width` = C of them, as [B, H, S, D].
at::Tensor heads_of(const Columns& columns, std::int64_t width, std::int64_t heads) {
  return columns.rows.narrow(2, columns.first, width)
      .unflatten(2, at::IntArrayRef{heads, width / heads})
      .transpose(1, 2);
}

// Calls step(PartRows) for blocks of rows: all scores at once might not fit into memory.
template <class Step>
void each_rows(const AttentionPart& part, std::int64_t width, at::ScalarType type, Step step) {
  constexpr std::int64_t kRows = 1024;
  const Sight& sight = part.sight;
  const at::Tensor query = heads_of(part.query, width, part.heads);
  const at::Tensor key = heads_of(part.key, width, part.heads).narrow(2, 0, sight.keys).to(type);
  const at::Tensor value =
      heads_of(part.value, width, part.heads).narrow(2, 0, sight.keys).to(type);
  for (std::int64_t first = sight.first_query; first < query.size(2); first += kRows) {
    const std::int64_t count = std::min(kRows, query.size(2) - first);
    const std::int64_t keys = sight.causal ? std::min(sight.keys, first + count) : sight.keys;
    PartRows rows{.first = first,
                  .count = count,
                  .query = query.narrow(2, first, count).to(type),
                  .key = key.narrow(2, 0, keys),
                  .value = value.narrow(2, 0, keys)};
    if (sight.causal)
      rows.hidden = at::ones({count, keys}, query.options().dtype(at::kBool)).triu_(first + 1);
    step(rows);
  }
}

}  // namespace

void attend_part(const AttentionPart& part, const at::Tensor& sums, const at::Tensor& maxima,
                 const at::Tensor& totals) {
  const at::Tensor sums_BHSD = heads_of({sums}, sums.size(2), part.heads);
  each_rows(part, sums.size(2), sums.scalar_type(), [&](const PartRows& rows) {
    at::Tensor maximum = rows.of(maxima), total = rows.of(totals), sum = rows.of(sums_BHSD);
    const at::Tensor scores = rows.scores(), largest = at::maximum(maximum, scores.amax(-1));
    const at::Tensor shrink = (maximum - largest).exp_();  // 0 for the first part
    const at::Tensor weights = (scores - largest.unsqueeze(-1)).exp_();
    maximum.copy_(largest);
    total.mul_(shrink).add_(weights.sum(-1));
    sum.mul_(shrink.unsqueeze(-1)).add_(at::matmul(weights, rows.value));
  });
}

void attend_part_backward(const AttentionPart& part, const at::Tensor& gradient,
                          const at::Tensor& logsumexp, const at::Tensor& dots,
                          const at::Tensor& query_gradient, const Columns& key_gradient,
                          const Columns& value_gradient) {
  const std::int64_t width = gradient.size(2);
  const auto type = logsumexp.scalar_type();
  const at::Tensor of_output = heads_of({gradient}, width, part.heads),
                   dquery = heads_of({query_gradient}, width, part.heads),
                   dkey = heads_of(key_gradient, width, part.heads),
                   dvalue = heads_of(value_gradient, width, part.heads);
  each_rows(part, width, type, [&](const PartRows& rows) {
    const at::Tensor weights = (rows.scores() - rows.of(logsumexp).unsqueeze(-1)).exp_();
    const at::Tensor of_rows = rows.of(of_output).to(type);
    const std::int64_t keys = rows.key.size(2);
    const double scale = 1 / std::sqrt(static_cast<double>(rows.query.size(3)));
    const at::Tensor of_scores =
        (at::matmul(of_rows, rows.value.transpose(2, 3)) - rows.of(dots).unsqueeze(-1))
            .mul_(weights)
            .mul_(scale);
    dvalue.narrow(2, 0, keys).add_(at::matmul(weights.transpose(2, 3), of_rows));
    rows.of(dquery).add_(at::matmul(of_scores, rows.key));
    dkey.narrow(2, 0, keys).add_(at::matmul(of_scores.transpose(2, 3), rows.query));
  });
}

}  // namespace libtorch
}  // namespace trireme::inline v0::tensor
