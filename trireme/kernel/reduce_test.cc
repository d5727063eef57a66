#include "trireme/kernel/reduce.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "trireme/base/check.h"
#include "trireme/kernel/isa.h"
#include "trireme/kernel/reduce_table.h"

namespace trireme::kernel {
namespace {

constexpr DType kKinds[] = {DType::F64, DType::F32, DType::BF16, DType::F16,
                            DType::I64, DType::I32, DType::U8};

// Random bits, which include NaNs and infinities.
std::vector<std::byte> random_bytes(std::size_t bytes, std::mt19937& random) {
  std::vector<std::byte> out(bytes);
  for (auto& one : out) one = std::byte(random());
  return out;
}

double half_value(std::uint16_t bits) {
  const int exponent = bits >> 10 & 31, fraction = bits & 1023;
  double value = exponent == 0    ? std::ldexp(fraction, -24)
                 : exponent == 31 ? (fraction ? NAN : INFINITY)
                                  : std::ldexp(1024 + fraction, exponent - 25);
  return bits >> 15 ? -value : value;
}

float bf16_value(std::uint16_t bits) { return std::bit_cast<float>(std::uint32_t(bits) << 16); }

TEST(Reduce, SumsOfFloats) {
  std::vector<float> a(1003), b(1003), out(1003);
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  for (auto& v : a) v = normal(random);
  for (auto& v : b) v = normal(random);
  combine(Combine::Sum, DType::F32, a.data(), b.data(), out.data(), a.size());
  for (std::size_t i = 0; i < a.size(); ++i) EXPECT_EQ(out[i], a[i] + b[i]);
  combine(Combine::Product, DType::F32, a.data(), b.data(), out.data(), a.size());
  for (std::size_t i = 0; i < a.size(); ++i) EXPECT_EQ(out[i], a[i] * b[i]);
  combine(Combine::Min, DType::F32, a.data(), b.data(), a.data(), a.size());  // in place
  for (std::size_t i = 0; i < a.size(); ++i) EXPECT_LE(a[i], b[i]);
}

TEST(Reduce, IntegersWrapAndCompareSigned) {
  std::int32_t a[] = {INT32_MAX, -5, 7}, b[] = {1, 3, -9}, out[3];
  combine(Combine::Sum, DType::I32, a, b, out, 3);
  EXPECT_EQ(out[0], INT32_MIN);
  combine(Combine::Max, DType::I32, a, b, out, 3);
  EXPECT_EQ(out[1], 3);
  combine(Combine::Min, DType::I32, a, b, out, 3);
  EXPECT_EQ(out[2], -9);
  std::uint8_t c[] = {250, 1}, d[] = {10, 2}, e[2];
  combine(Combine::Sum, DType::U8, c, d, e, 2);
  EXPECT_EQ(e[0], 4);
  combine(Combine::Max, DType::U8, c, d, e, 2);
  EXPECT_EQ(e[0], 250);
}

TEST(Reduce, MinAndMaxKeepNaN) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  float a[] = {nan, 1}, b[] = {1, nan}, out[2];
  for (Combine op : {Combine::Min, Combine::Max}) {
    combine(op, DType::F32, a, b, out, 2);
    EXPECT_TRUE(std::isnan(out[0]));
    EXPECT_TRUE(std::isnan(out[1]));
  }
}

// Random pairs of halves against exact arithmetic, rounded once: the sum of two halves is exact in
// fp64, so the result must be a nearest half, ties to even.
TEST(Reduce, HalvesAreAddedInFp32AndRoundedToNearestEven) {
  std::mt19937 random(5);
  std::vector<std::uint16_t> a(20000), b(20000), out(20000);
  for (auto& v : a) v = random();
  for (auto& v : b) v = random();
  combine(Combine::Sum, DType::F16, a.data(), b.data(), out.data(), a.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    const float exact = float(half_value(a[i])) + float(half_value(b[i]));
    if (std::isnan(exact)) {
      EXPECT_TRUE(std::isnan(half_value(out[i])));
    } else if (std::abs(exact) >= 65520) {
      EXPECT_TRUE(std::isinf(half_value(out[i]))) << exact;
    } else {
      const double error = std::abs(half_value(out[i]) - exact);
      for (int step : {-1, 1}) {
        const auto neighbour = std::uint16_t(out[i] + step);
        if ((neighbour ^ out[i]) & 0x8000 || (neighbour & 0x7c00) == 0x7c00) continue;
        const double other = std::abs(half_value(neighbour) - exact);
        EXPECT_TRUE(error < other || (error == other && out[i] % 2 == 0)) << a[i] << " " << b[i];
      }
    }
  }
  combine(Combine::Sum, DType::BF16, a.data(), b.data(), out.data(), a.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    const float exact = bf16_value(a[i]) + bf16_value(b[i]);
    if (std::isnan(exact)) {
      EXPECT_TRUE(std::isnan(bf16_value(out[i])));
      continue;
    }
    const std::uint32_t bits = std::bit_cast<std::uint32_t>(exact);
    EXPECT_EQ(out[i], std::uint16_t((bits + 0x7fff + (bits >> 16 & 1)) >> 16));
  }
}

// Leaves are 16-bit, partial results are fp32, and the root is rounded once. 1 + 1 + 1 + 256 = 259
// becomes 260 in bf16; rounding at each node would give 258.
TEST(Reduce, HalvesAreAccumulatedInFp32) {
  EXPECT_TRUE(accumulates_wide(Combine::Sum, DType::BF16));
  EXPECT_FALSE(accumulates_wide(Combine::Min, DType::BF16));
  EXPECT_FALSE(accumulates_wide(Combine::Sum, DType::F32));
  const std::uint16_t one = 0x3f80, big = 0x4380, wanted = 0x4382;  // 1, 256, 260
  for (std::size_t count : {1u, 31u, 32u, 33u, 2000u}) {
    const std::vector<std::uint16_t> ones(count, one), bigs(count, big);
    std::vector<std::uint16_t> out(count), also(count);
    const LeafRange leaves[] = {{0, 1}, {1, 1}, {2, 1}, {3, 1}};
    const void* in[] = {bigs.data(), ones.data(), ones.data(), ones.data()};
    void* outs[] = {out.data(), also.data()};
    fold(Combine::Sum, DType::BF16, fold_steps(leaves, 4), in, outs, count, 0);
    EXPECT_EQ(out, std::vector<std::uint16_t>(count, wanted));
    EXPECT_EQ(also, out);
    std::vector<float> left(count), right(count);
    combine_wide(Combine::Sum, DType::BF16, in[0], false, in[1], false, left.data(), true, count);
    combine_wide(Combine::Sum, DType::BF16, in[2], false, in[3], false, right.data(), true, count);
    EXPECT_EQ(left, std::vector<float>(count, 257.0f));
    combine_wide(Combine::Sum, DType::BF16, left.data(), true, right.data(), true, also.data(),
                 false, count);
    EXPECT_EQ(also, out);
    combine_wide(Combine::Sum, DType::BF16, left.data(), true, in[1], false, left.data(), true,
                 count);
    EXPECT_EQ(left, std::vector<float>(count, 258.0f));
  }
}

// An element's result must not depend on its position, the count, or the instruction set.
TEST(Reduce, TailsGiveTheBitsOfTheBody) {
  std::mt19937 random(9);
  for (DType dtype : kKinds) {
    const std::size_t width = size_of(dtype);
    const auto a = random_bytes(300 * width, random), b = random_bytes(300 * width, random);
    for (Combine op : {Combine::Sum, Combine::Min, Combine::Max, Combine::Product}) {
      std::vector<std::byte> whole(300 * width), one(300 * width);
      combine(op, dtype, a.data(), b.data(), whole.data(), 300);
      for (std::size_t i = 0; i < 300; ++i) {
        combine(op, dtype, &a[i * width], &b[i * width], &one[i * width], 1);
      }
      EXPECT_EQ(whole, one) << name_of(dtype);
    }
  }
}

TEST(Reduce, InstructionSetsAgreeOnNumbers) {
  std::mt19937 random(13);
  const ReduceTable& other = isa() == Isa::Avx512 ? kReduceAvx2 : kReduceSse2;
  for (int kind = 0; kind < kNumKinds; ++kind) {
    const std::size_t width = size_of(kKinds[kind]);
    auto a = random_bytes(301 * width, random), b = random_bytes(301 * width, random);
    if (kind < 4) {  // avoid NaN, whose payload depends on the hardware
      for (std::size_t i = 0; i < 301; ++i) {
        a[i * width + width - 1] &= std::byte(0xbf);
        b[i * width + width - 1] &= std::byte(0xbf);
      }
    }
    for (int op = 0; op < kNumCombines; ++op) {
      for (const ReduceTable* table : {&other, &kReduceSse2}) {
        std::vector<std::byte> x(301 * width), y(301 * width);
        combine(Combine(op), kKinds[kind], a.data(), b.data(), x.data(), 301);
        void* to = y.data();
        table->combine[op][kind](a.data(), b.data(), &to, 1, 301);
        EXPECT_EQ(x, y) << name_of(kKinds[kind]) << " op " << op;
      }
    }
  }
}

TEST(Reduce, FoldGivesTheTreeAndWritesEveryOutput) {
  std::mt19937 random(17);
  std::normal_distribution<float> normal;
  for (std::uint32_t total = 1; total <= 13; ++total) {
    for (std::size_t count : {1u, 7u, 512u, 1500u}) {
      {
        std::vector<std::vector<float>> leaves(total, std::vector<float>(count));
        std::vector<LeafRange> nodes;
        for (std::uint32_t i = 0; i < total; ++i) {
          nodes.push_back({i, 1});
          for (float& v : leaves[i]) v = normal(random);
        }
        const auto tree = [&](auto&& self, std::uint32_t a, std::uint32_t b,
                              std::size_t i) -> float {
          if (b - a == 1) return leaves[a][i];
          const std::uint32_t c = a + (b - a) / 2;
          return self(self, a, c, i) + self(self, c, b, i);
        };
        std::vector<float> expected(count), second(count);
        for (std::size_t i = 0; i < count; ++i) expected[i] = tree(tree, 0, total, i) / 3.0f;
        std::vector<const void*> in;
        for (auto& leaf : leaves) in.push_back(leaf.data());
        void* out[] = {leaves.back().data(), second.data()};  // in place over the last operand
        fold(Combine::Sum, DType::F32, fold_steps(nodes, total), in, out, count, 3);
        EXPECT_EQ(leaves.back(), expected);
        EXPECT_EQ(second, expected);
      }
    }
  }
}

TEST(Reduce, DivideReachesEveryElement) {
  for (std::size_t count : {0u, 1u, 15u, 16u, 33u}) {
    std::vector<double> values(count + 1, 3.0), expected(count, 0.75);
    expected.push_back(3.0);
    divide(DType::F64, values.data(), count, 4);
    EXPECT_EQ(values, expected);
  }
}

// A step has 16 bits for the number of a slot.
TEST(FoldSteps, RefuseMoreNodesThanThereAreSlots) {
  std::vector<LeafRange> leaves;
  for (std::uint32_t leaf = 0; leaf < 65'537; ++leaf) leaves.push_back({leaf, 1});
  EXPECT_EQ(fold_steps(std::span(leaves).first(65'536), 65'536).size(), 65'535u);
  EXPECT_THROW(fold_steps(leaves, 65'537), CheckFailure);
}

}  // namespace
}  // namespace trireme::kernel
