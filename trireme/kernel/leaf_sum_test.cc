#include "trireme/kernel/leaf_sum.h"

#include <gtest/gtest.h>

#include "trireme/kernel/float16.h"

#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace trireme {
namespace {

using kernel::add_leaf;
using kernel::all_finite;

std::vector<float> random_floats(std::size_t count, unsigned seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values) value = normal(generator);
  return values;
}

TEST(LeafSum, AddsTheChainYoungestFirst) {
  for (std::size_t count : {1u, 7u, 1023u, 1024u, 1025u, 5000u}) {
    const auto gradient = random_floats(count, 1), young = random_floats(count, 2);
    auto old = random_floats(count, 3);
    const auto old_before = old;
    const void* open[] = {old.data(), young.data()};
    EXPECT_TRUE(add_leaf(gradient.data(), DType::F32, 3, open, old.data(), count));
    for (std::size_t i = 0; i < count; ++i) {
      const volatile float leaf = gradient[i] * 3.0f;
      const volatile float inner = young[i] + leaf;
      ASSERT_EQ(old[i], old_before[i] + inner) << i << " of " << count;
    }
  }
}

TEST(LeafSum, AnElementDoesNotKnowItsPosition) {
  const std::size_t count = 4096 + 13;
  const auto gradient = random_floats(count, 4), sibling = random_floats(count, 5);
  std::vector<float> whole(count);
  const void* open[] = {sibling.data()};
  add_leaf(gradient.data(), DType::F32, 7, open, whole.data(), count);
  for (std::size_t begin : {1u, 100u, 1025u, 4095u}) {
    std::vector<float> part(count - begin);
    const void* cut[] = {sibling.data() + begin};
    add_leaf(gradient.data() + begin, DType::F32, 7, cut, part.data(), part.size());
    for (std::size_t i = 0; i < part.size(); ++i) ASSERT_EQ(part[i], whole[begin + i]);
  }
}

TEST(LeafSum, StoresMinusZeroAndAbsentGradientsAsPlusZero) {
  const std::vector<float> gradient(3, -0.0f);
  std::vector<float> out(3, 1);
  EXPECT_TRUE(add_leaf(gradient.data(), DType::F32, 2, {}, out.data(), 3));
  for (float value : out) EXPECT_FALSE(value != 0 || std::signbit(value));
  out.assign(3, 1);
  EXPECT_TRUE(add_leaf(nullptr, DType::F32, 2, {}, out.data(), 3));
  for (float value : out) EXPECT_FALSE(value != 0 || std::signbit(value));
}

TEST(LeafSum, SumsBf16InFp32AndFp64InFp64) {
  const BFloat16 gradient[] = {{0x3f80}, {0xc000}};  // 1, -2
  float out[2];
  EXPECT_TRUE(add_leaf(gradient, DType::BF16, 5, {}, out, 2));
  EXPECT_EQ(out[0], 5);
  EXPECT_EQ(out[1], -10);
  const double fine[] = {1.0 + std::numeric_limits<double>::epsilon()};
  double sum[1];
  EXPECT_TRUE(add_leaf(fine, DType::F64, 1, {}, sum, 1));
  EXPECT_EQ(sum[0], fine[0]);
}

// A weight that is a power of two (the unscaling of a scaled loss) is exact, also for subnormals.
TEST(LeafSum, SumsFp16InFp32) {
  std::vector<Float16> gradient(0x7c00);
  for (std::size_t i = 0; i < gradient.size(); ++i)
    gradient[i].bits = static_cast<std::uint16_t>(i % 2 == 0 ? i : i | 0x8000);
  std::vector<float> out(gradient.size());
  EXPECT_TRUE(add_leaf(gradient.data(), DType::F16, 0x1p-16, {}, out.data(), out.size()));
  for (std::size_t i = 0; i < gradient.size(); ++i)
    ASSERT_EQ(double{out[i]} * 65536, kernel::value_of(gradient[i])) << i;
  gradient[5000].bits = 0x7c00;
  EXPECT_FALSE(add_leaf(gradient.data(), DType::F16, 0x1p-16, {}, out.data(), out.size()));
}

TEST(LeafSum, SaysWhereANumberIsNotFinite) {
  for (float bad : {INFINITY, -INFINITY, NAN}) {
    auto gradient = random_floats(3000, 6);
    std::vector<float> out(3000);
    EXPECT_TRUE(add_leaf(gradient.data(), DType::F32, 1, {}, out.data(), out.size()));
    gradient[2999] = bad;
    EXPECT_FALSE(add_leaf(gradient.data(), DType::F32, 1, {}, out.data(), out.size()));
  }
}

TEST(LeafSum, AddsUses) {
  float into[] = {1, 2}, from[] = {10, 20};
  kernel::add_into(into, from, DType::F32, 2);
  EXPECT_EQ(into[1], 22);
}

TEST(LeafSum, AllFiniteFindsOneBadValueAnywhere) {
  for (const std::size_t count : {0u, 1u, 7u, 1023u, 1024u, 1025u, 3000u}) {
    std::vector<float> singles(count, std::numeric_limits<float>::max());
    std::vector<double> doubles(count, -std::numeric_limits<double>::max());
    EXPECT_TRUE(all_finite(singles.data(), DType::F32, count));
    EXPECT_TRUE(all_finite(doubles.data(), DType::F64, count));
    for (const std::size_t at : {std::size_t{0}, count / 2, count - 1}) {
      if (at >= count) continue;
      singles[at] = -std::numeric_limits<float>::infinity();
      doubles[at] = std::nan("");
      EXPECT_FALSE(all_finite(singles.data(), DType::F32, count)) << at << " of " << count;
      EXPECT_FALSE(all_finite(doubles.data(), DType::F64, count)) << at << " of " << count;
      singles[at] = 0;
      doubles[at] = 0;
    }
  }
}

}  // namespace
}  // namespace trireme
