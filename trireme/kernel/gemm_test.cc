// Compares the products of every instruction set with fp64 loops, at strides and sizes with every
// kind of remainder. The bits of an element must not depend on its neighbours.
#include "trireme/kernel/gemm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "trireme/kernel/float16.h"
#include "trireme/kernel/simd.h"
#include "trireme/testing/kernel_levels.h"

namespace trireme::kernel {
namespace {

using trireme::testing::levels;

struct Shape {
  std::size_t m, n, k;
};
const Shape kShapes[] = {{1, 1, 1},    {6, 64, 64},   {7, 65, 33},   {64, 64, 256},
                         {5, 16, 3},   {13, 47, 18},  {64, 192, 64}, {3, 100, 7},
                         {150, 24, 7}, {12, 128, 64}, {66, 31, 130}};

template <class T>
T stored(float value) {
  if constexpr (std::is_same_v<T, float>) {
    return value;
  } else {
    T narrow;
    convert(&value, &narrow, 1);
    return narrow;
  }
}

// A stored matrix. The memory beyond its rows is NaN and must not enter a sum.
template <class T>
struct Stored {
  std::vector<T> values;
  Matrix<T> matrix;
  Stored(std::size_t rows, std::size_t columns, std::size_t gap, bool transposed, unsigned seed) {
    const std::size_t stored_rows = transposed ? columns : rows;
    const std::size_t width = transposed ? rows : columns;
    std::mt19937 generator(seed);
    std::uniform_real_distribution<float> draw(-1, 1);
    for (std::size_t i = 0; i < stored_rows; ++i) {
      for (std::size_t j = 0; j < width; ++j) values.push_back(stored<T>(draw(generator)));
      for (std::size_t j = 0; j < gap; ++j)
        values.push_back(stored<T>(std::numeric_limits<float>::quiet_NaN()));
    }
    matrix = {values.data(), width + gap, transposed};
  }
  double at(std::size_t row, std::size_t column) const {
    if (matrix.transposed) std::swap(row, column);
    return value_of(values[row * matrix.stride + column]);
  }
};

template <class T, class Run>
void expect_products(Run run) {
  for (const Shape& shape : kShapes) {
    for (int form = 0; form < 8; ++form) {
      const std::size_t gap = form & 4 ? 3 : 0;
      const Stored<T> a(shape.m, shape.k, gap, form & 1, 1), b(shape.k, shape.n, gap, form & 2, 2);
      const std::size_t stride = shape.n + 2;
      std::vector<float> c(shape.m * stride, 7.0f);
      Product<T> product{shape.m, shape.n, shape.k, a.matrix, b.matrix, c.data(), stride, false};
      run(product);
      product.accumulate = true;
      run(product);  // twice the product
      for (std::size_t i = 0; i < shape.m; ++i) {
        for (std::size_t j = 0; j < shape.n; ++j) {
          double exact = 0, size = 0;
          for (std::size_t s = 0; s < shape.k; ++s) {
            exact += a.at(i, s) * b.at(s, j);
            size += std::abs(a.at(i, s) * b.at(s, j));
          }
          ASSERT_NEAR(c[i * stride + j], 2 * exact, 1e-6 * size + 1e-6)
              << shape.m << "x" << shape.n << "x" << shape.k << " form " << form << " at " << i
              << "," << j;
        }
        ASSERT_EQ(c[i * stride + shape.n], 7.0f) << "wrote beyond row " << i;
      }
    }
  }
}

TEST(KernelGemm, Fp32OfEveryShapeAndForm) {
  for (Isa level : levels()) {
    SCOPED_TRACE(name_of(level));
    expect_products<float>([&](const Product<float>& product) {
      std::vector<float> scratch((product.n + 15) / 16 * 16 * product.k);
      simd(level).gemm(product, scratch.data());
    });
  }
}

// There is no fallback: on a processor without such products the kernel refuses.
TEST(KernelGemm, Bf16OfEveryShapeAndForm) {
  if (has_bf16_products()) {
    expect_products<BFloat16>([](const Product<BFloat16>& product) { gemm(product); });
  } else {
    EXPECT_ANY_THROW(gemm(Product<BFloat16>{}));
  }
}

TEST(KernelTranspose, OfEveryShape) {
  for (Isa level : levels()) {
    for (const auto& [rows, columns] :
         {std::pair{1, 1}, {16, 16}, {15, 33}, {48, 7}, {33, 64}, {128, 50}}) {
      SCOPED_TRACE(std::string(name_of(level)) + " " + std::to_string(rows) + "x" +
                   std::to_string(columns));
      const Stored<float> from(rows, columns, 0, false, 5);
      std::vector<float> to(rows * columns + 1, 7.0f);
      simd(level).transpose(from.matrix.data, rows, columns, to.data());
      for (int i = 0; i < rows; ++i)
        for (int j = 0; j < columns; ++j) ASSERT_EQ(to[j * rows + i], from.at(i, j));
      EXPECT_EQ(to.back(), 7.0f) << "wrote beyond the end";
    }
  }
}

TEST(KernelGemm, AnElementsBitsDoNotDependOnItsPlace) {
  const Stored<float> a(40, 50, 0, false, 3), b(50, 70, 0, false, 4);
  std::vector<float> whole(40 * 70);
  gemm({40, 70, 50, a.matrix, b.matrix, whole.data(), 70, false});
  for (std::size_t row : {0, 5, 17}) {
    for (std::size_t column : {0, 15, 33}) {
      std::vector<float> part(3 * 20);
      Matrix<float> rows = a.matrix, columns = b.matrix;
      rows.data += row * rows.stride;
      columns.data += column;
      gemm({3, 20, 50, rows, columns, part.data(), 20, false});
      for (std::size_t i = 0; i < 3; ++i) {
        for (std::size_t j = 0; j < 20; ++j) {
          EXPECT_EQ(part[i * 20 + j], whole[(row + i) * 70 + column + j]) << row << " " << column;
        }
      }
    }
  }
}

}  // namespace
}  // namespace trireme::kernel
