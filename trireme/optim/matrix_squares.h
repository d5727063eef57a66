// Sums of a gradient's squares by row and by column of its matrices, by LibTorch's operations, in
// the order of ChunkSum: for Adafactor on devices. Nothing here waits for the device. Internal to
// optim/. Stateless, thread safe.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "trireme/kernel/tree_sum.h"

namespace trireme::inline v0::optim {

/// A parameter [..., R, C] as `num` matrices [rows, columns]. rows = 0: it is a vector.
struct Matrices {
  std::int64_t num = 1, rows = 0, columns = 0;
};

/// Elements of a parameter from `begin`, a multiple of 4,096, on; flat, at least one.
struct GradientSlice {
  const at::Tensor& values;
  std::int64_t begin = 0;
};

/// fp64 [chunks, n]: element (k, i) is of the i-th row that the slice's chunk k touches; 0 if it
/// touches fewer.
at::Tensor row_squares(const GradientSlice& slice, const Matrices& matrices);

/// The sum T of a range of chunks: values of the columns from `first` on, counted over all
/// matrices; the others are zero.
struct ColumnSquares {
  kernel::LeafRange chunks;
  std::int64_t first = 0;
  at::Tensor values;  // fp64
};
/// One for each maximal node inside the slice of a parameter of `num_chunks` chunks, ascending.
std::vector<ColumnSquares> column_squares(const GradientSlice& slice, const Matrices& matrices,
                                          std::uint32_t num_chunks);

/// rows[m, r] * columns[m, c] of `count` elements from `begin` on, flat. `rows` and `columns` are
/// flat and of all matrices.
at::Tensor outer_product(const at::Tensor& rows, const at::Tensor& columns,
                         const Matrices& matrices, std::int64_t begin, std::int64_t count);

}  // namespace trireme::inline v0::optim
