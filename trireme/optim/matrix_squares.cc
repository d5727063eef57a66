#include "trireme/optim/matrix_squares.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>

#include <algorithm>
#include <bit>

#include "trireme/kernel/elementwise.h"
#include "trireme/tensor/devices/device.h"
#include "trireme/tensor/flat_math.h"

namespace trireme::inline v0::optim {
namespace {

constexpr auto kChunk = static_cast<std::int64_t>(kernel::kNormChunk);
constexpr std::int64_t kMost = 1 << 21;  // elements of a temporary tensor

std::int64_t divide_up(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

at::Tensor range(const GradientSlice& slice, std::int64_t begin, std::int64_t end) {
  return at::arange(begin, end, at::TensorOptions(slice.values.device()).dtype(at::kLong));
}

// The squares of the parameter's elements `index`; 0 where index >= end.
at::Tensor squares_at(const GradientSlice& slice, const at::Tensor& index, const at::Tensor& end) {
  const at::Tensor own = (index - slice.begin).clamp(0, slice.values.numel() - 1);
  const at::Tensor values = slice.values.index_select(0, own.flatten()).view(own.sizes());
  return at::where(index < end, values.to(at::kDouble).square(), 0.0);
}

// T over the first dimension. With n leaves the tree's level floor(log2 n) has nodes of one or two
// leaves only, and below it every node has two children.
at::Tensor tree_sum(const at::Tensor& leaves) {
  const std::int64_t count = leaves.size(0), width = leaves.size(1);
  std::vector<std::int64_t> cuts = {0, count};
  while (2 * static_cast<std::int64_t>(cuts.size() - 1) <= count) {
    std::vector<std::int64_t> finer = {0};
    for (std::size_t i = 1; i < cuts.size(); ++i)
      finer.insert(finer.end(), {cuts[i - 1] + (cuts[i] - cuts[i - 1]) / 2, cuts[i]});
    cuts = std::move(finer);
  }
  std::vector<std::int64_t> second;  // leaf of zeros: number `count`
  for (std::size_t i = 1; i < cuts.size(); ++i)
    second.push_back(cuts[i] - cuts[i - 1] == 2 ? cuts[i] - 1 : count);
  cuts.pop_back();
  const auto rows = [&](const at::Tensor& from, const std::vector<std::int64_t>& which) {
    return from.index_select(0, tensor::on_device(at::tensor(which, at::kLong), from.device()));
  };
  at::Tensor sums = rows(leaves, cuts) + rows(at::constant_pad_nd(leaves, {0, 0, 0, 1}), second);
  while (sums.size(0) > 1) {
    const at::Tensor pairs = sums.view({-1, 2, width});
    sums = pairs.select(1, 0) + pairs.select(1, 1);
  }
  return sums.select(0, 0);
}

// A column's elements in one chunk lie `columns` apart; they are added in this order.
at::Tensor column_leaves(const GradientSlice& slice, const Matrices& matrices,
                         kernel::LeafRange chunks, std::int64_t first, std::int64_t last) {
  const std::int64_t elements = matrices.rows * matrices.columns;
  const at::Tensor chunk = range(slice, chunks.first, chunks.end()).mul(kChunk).view({-1, 1});
  const at::Tensor column = range(slice, first, last);
  const at::Tensor matrix = column.floor_divide(matrices.columns).mul(elements);
  const at::Tensor top = matrix + column.remainder(matrices.columns);
  const at::Tensor end = at::minimum(matrix + elements, chunk + kChunk);
  at::Tensor index = at::maximum(chunk + (top - chunk).remainder(matrices.columns), top);
  at::Tensor sums = squares_at(slice, index, end);
  for (std::int64_t i = std::min(divide_up(kChunk, matrices.columns), matrices.rows); i > 1; --i) {
    index = index + matrices.columns;
    sums = sums + squares_at(slice, index, end);
  }
  return sums;
}

ColumnSquares sum_of_columns(const GradientSlice& slice, const Matrices& matrices,
                             kernel::LeafRange chunks) {
  const std::int64_t elements = matrices.rows * matrices.columns;
  const std::int64_t begin = chunks.first * kChunk;
  const std::int64_t end = std::min(chunks.end() * kChunk, slice.begin + slice.values.numel());
  const std::int64_t first = begin / elements * matrices.columns;
  const std::int64_t last = divide_up(end, elements) * matrices.columns;
  if (chunks.count == 1 || chunks.count * (last - first) <= kMost)
    return {chunks, first, tree_sum(column_leaves(slice, matrices, chunks, first, last))};
  const std::uint32_t half = chunks.count / 2;
  const ColumnSquares left = sum_of_columns(slice, matrices, {chunks.first, half});
  const ColumnSquares right =
      sum_of_columns(slice, matrices, {chunks.first + half, chunks.count - half});
  const auto widened = [&](const ColumnSquares& one) {
    const std::int64_t before = one.first - first;
    return at::constant_pad_nd(one.values, {before, last - first - before - one.values.numel()});
  };
  return {chunks, first, widened(left) + widened(right)};
}

}  // namespace

at::Tensor row_squares(const GradientSlice& slice, const Matrices& matrices) {
  const std::int64_t columns = matrices.columns, end = slice.begin + slice.values.numel();
  const std::int64_t rows = (kChunk - 1) / columns + 2;
  const auto length = static_cast<std::int64_t>(
      std::bit_ceil(static_cast<std::uint64_t>(std::min(columns, kChunk))));
  const std::int64_t at_once = std::max<std::int64_t>(1, kMost / (rows * length)) * kChunk;
  std::vector<at::Tensor> sums;
  for (std::int64_t begin = slice.begin; begin < end; begin += at_once) {
    const std::int64_t chunks = divide_up(std::min(at_once, end - begin), kChunk);
    const at::Tensor chunk = range(slice, 0, chunks).mul(kChunk).add(begin).view({-1, 1});
    const at::Tensor row = (chunk.floor_divide(columns) + range(slice, 0, rows)).mul(columns);
    const at::Tensor until = at::minimum(row + columns, (chunk + kChunk).clamp_max(end));
    const at::Tensor from = at::maximum(row, chunk).unsqueeze(-1);
    sums.push_back(tensor::sum_by_halves(
        squares_at(slice, from + range(slice, 0, length), until.unsqueeze(-1))));
  }
  return at::cat(sums);
}

std::vector<ColumnSquares> column_squares(const GradientSlice& slice, const Matrices& matrices,
                                          std::uint32_t num_chunks) {
  const kernel::LeafRange chunks{
      static_cast<std::uint32_t>(slice.begin / kChunk),
      static_cast<std::uint32_t>(divide_up(slice.values.numel(), kChunk))};
  std::vector<ColumnSquares> sums;
  for (const kernel::LeafRange node : kernel::maximal_nodes(chunks, num_chunks))
    sums.push_back(sum_of_columns(slice, matrices, node));
  return sums;
}

at::Tensor outer_product(const at::Tensor& rows, const at::Tensor& columns,
                         const Matrices& matrices, std::int64_t begin, std::int64_t count) {
  const std::int64_t elements = matrices.rows * matrices.columns;
  const std::int64_t first = begin / elements, num = divide_up(begin + count, elements) - first;
  at::Tensor own_rows = rows.view({matrices.num, matrices.rows, 1}).narrow(0, first, num);
  std::int64_t skipped = first * elements;
  if (num == 1) {  // a large matrix may have many owners
    const std::int64_t row = (begin - skipped) / matrices.columns;
    const std::int64_t last = divide_up(begin + count - skipped, matrices.columns);
    own_rows = own_rows.narrow(1, row, last - row);
    skipped += row * matrices.columns;
  }
  const at::Tensor own_columns =
      columns.view({matrices.num, 1, matrices.columns}).narrow(0, first, num);
  return (own_rows * own_columns).flatten().narrow(0, begin - skipped, count);
}

}  // namespace trireme::inline v0::optim
