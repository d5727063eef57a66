#include "trireme/optim/matrix_squares.h"

#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include "trireme/kernel/elementwise.h"
#include "trireme/optim/chunk_sum.h"

namespace trireme::optim {
namespace {

constexpr auto kChunk = static_cast<std::int64_t>(kernel::kNormChunk);

// Leaf by leaf, each element by itself.
std::vector<double> columns_by_hand(const at::Tensor& gradient, const Matrices& matrices) {
  const std::int64_t count = gradient.numel();
  const auto chunks = static_cast<std::uint32_t>((count + kChunk - 1) / kChunk);
  const auto width = static_cast<std::size_t>(matrices.num * matrices.columns);
  ChunkSum sum(0, chunks, width);
  const float* const values = gradient.const_data_ptr<float>();
  for (std::uint32_t chunk = 0; chunk < chunks; ++chunk) {
    const std::int64_t begin = chunk * kChunk, end = std::min(begin + kChunk, count);
    const std::int64_t elements = matrices.rows * matrices.columns;
    const std::int64_t first = begin / elements * matrices.columns;
    std::vector<double> leaf(
        static_cast<std::size_t>(((end - 1) / elements + 1) * matrices.columns - first));
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t column = i / elements * matrices.columns + i % matrices.columns;
      leaf[static_cast<std::size_t>(column - first)] += double{values[i]} * double{values[i]};
    }
    sum.add(chunk, static_cast<std::size_t>(first), leaf);
  }
  return sum.total();
}

// One matrix, wide ones, and many small ones; more elements than one temporary tensor holds.
TEST(MatrixSquares, ColumnsAreTheTreeOfTheChunks) {
  for (const Matrices& matrices : {Matrices{1, 13, 1001}, Matrices{1, 200, 9000},
                                   Matrices{170'000, 1, 3}, Matrices{900, 3, 3}}) {
    const std::int64_t count = matrices.num * matrices.rows * matrices.columns;
    const at::Tensor gradient = at::randn({count}, at::kFloat);
    const std::int64_t cut = count / 3 / kChunk * kChunk;
    const auto chunks = static_cast<std::uint32_t>((count + kChunk - 1) / kChunk);
    ChunkSum sum(0, chunks, static_cast<std::size_t>(matrices.num * matrices.columns));
    for (const auto& [begin, end] : {std::pair{std::int64_t{0}, cut}, std::pair{cut, count}}) {
      if (begin == end) continue;
      const at::Tensor part = gradient.narrow(0, begin, end - begin);
      for (const ColumnSquares& node : column_squares({part, begin}, matrices, chunks)) {
        const double* const values = node.values.const_data_ptr<double>();
        sum.add({node.chunks,
                 static_cast<std::size_t>(node.first),
                 {values, values + node.values.numel()}});
      }
    }
    EXPECT_EQ(sum.total(), columns_by_hand(gradient, matrices)) << count;
  }
}

TEST(MatrixSquares, RowsOfAChunkComeInOrder) {
  const at::Tensor gradient = at::ones({3, 3000}, at::kFloat).flatten();
  const at::Tensor rows = row_squares({gradient, 0}, {.rows = 3, .columns = 3000});
  EXPECT_TRUE(
      at::equal(rows, at::tensor({3000.0, 1096.0, 0.0, 1904.0, 2192.0, 0.0, 808.0, 0.0, 0.0})
                          .to(at::kDouble)
                          .view({3, 3})));
}

TEST(MatrixSquares, AnOuterProductIsCutAsTheSlice) {
  const Matrices matrices{2, 3, 5};
  const at::Tensor rows = at::arange(6.0), columns = at::arange(10.0);
  const at::Tensor whole = (rows.view({2, 3, 1}) * columns.view({2, 1, 5})).flatten();
  for (std::int64_t begin = 0; begin < 30; ++begin)
    for (std::int64_t count = 1; begin + count <= 30; ++count)
      EXPECT_TRUE(at::equal(outer_product(rows, columns, matrices, begin, count),
                            whole.narrow(0, begin, count)))
          << begin << " " << count;
}

}  // namespace
}  // namespace trireme::optim
