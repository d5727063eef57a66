#include "trireme/kernel/elementwise.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "trireme/kernel/simd.h"
#include "trireme/testing/kernel_levels.h"

namespace trireme::kernel {
namespace {

using trireme::testing::levels;

std::vector<float> normal(std::size_t count, unsigned seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> draw;
  std::vector<float> values(count);
  for (float& value : values) value = draw(generator);
  return values;
}

TEST(Elementwise, Bf16RoundsToEvenAndBack) {
  const float inf = std::numeric_limits<float>::infinity();
  const std::vector<float> values = {0.0f, -0.0f, 1.0f,   1.00390625f, 1.01171875f,   3e38f,
                                     inf,  -inf,  1e-40f, -2.7182818f, 3.3895314e38f, 65504.0f,
                                     0.1f, 5.5f,  7e-5f,  1.0f,        std::nanf("")};
  const std::vector<std::uint16_t> wanted = {0x0000, 0x8000, 0x3f80, 0x3f80, 0x3f82, 0x7f62,
                                             0x7f80, 0xff80, 0x0001, 0xc02e, 0x7f7f, 0x4780,
                                             0x3dcd, 0x40b0, 0x3893, 0x3f80};
  for (Isa level : levels()) {
    std::vector<BFloat16> narrow(values.size());
    std::vector<float> back(values.size());
    simd(level).to_bf16(values.data(), narrow.data(), values.size());
    simd(level).bf16_to_f32(narrow.data(), back.data(), values.size());
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      EXPECT_EQ(narrow[i].bits, wanted[i]) << name_of(level) << " " << values[i];
      const std::uint32_t bits = std::uint32_t{wanted[i]} << 16;
      EXPECT_EQ(std::memcmp(&back[i], &bits, 4), 0);
    }
    EXPECT_TRUE(std::isnan(back.back())) << name_of(level);
  }
}

// Each of the 65,536 values has the sign, exponent and fraction of its bits, and rounds to itself.
TEST(Elementwise, Float16IsExactInFp32) {
  std::vector<Float16> halves(65536);
  for (std::size_t i = 0; i < halves.size(); ++i) halves[i].bits = static_cast<std::uint16_t>(i);
  for (Isa level : levels()) {
    std::vector<float> wide(halves.size());
    std::vector<Float16> back(halves.size());
    simd(level).f16_to_f32(halves.data(), wide.data(), halves.size());
    simd(level).to_f16(wide.data(), back.data(), halves.size());
    for (std::size_t i = 0; i < halves.size(); ++i) {
      const int exponent = (i >> 10) & 31, fraction = static_cast<int>(i & 1023);
      if (exponent == 31 && fraction != 0) {
        ASSERT_TRUE(std::isnan(wide[i])) << name_of(level) << " " << i;
        ASSERT_TRUE((back[i].bits & 0x7fff) > 0x7c00) << name_of(level) << " " << i;
        continue;
      }
      double wanted = exponent == 31  ? std::numeric_limits<double>::infinity()
                      : exponent == 0 ? std::ldexp(fraction, -24)
                                      : std::ldexp(1024 + fraction, exponent - 25);
      if (i >= 32768) wanted = -wanted;
      ASSERT_EQ(wide[i], wanted) << name_of(level) << " " << i;
      ASSERT_EQ(std::signbit(wide[i]), i >= 32768) << name_of(level) << " " << i;
      ASSERT_EQ(back[i].bits, i) << name_of(level);
      ASSERT_EQ(value_of(halves[i]), wide[i]);
    }
  }
}

// Half-way values round to the even neighbour, others to the nearer one; also towards infinity and
// among subnormal numbers.
TEST(Elementwise, Float16RoundsToEven) {
  std::vector<float> values;
  std::vector<std::uint16_t> wanted;
  for (std::uint32_t low = 0; low < 0x7c00; ++low) {
    const double a = value_of(Float16{static_cast<std::uint16_t>(low)});
    const double b =
        low == 0x7bff ? 65536.0 : value_of(Float16{static_cast<std::uint16_t>(low + 1)});
    const auto up = static_cast<std::uint16_t>(low + 1), down = static_cast<std::uint16_t>(low);
    const auto middle = static_cast<float>((a + b) / 2);
    values.insert(values.end(),
                  {middle, std::nextafter(middle, 1e9f), std::nextafter(middle, 0.f)});
    wanted.insert(wanted.end(), {low % 2 == 0 ? down : up, up, down});
  }
  values.insert(values.end(), {65520.0f, 65519.0f, 3e38f, 1e-40f, INFINITY});
  wanted.insert(wanted.end(), {0x7c00, 0x7bff, 0x7c00, 0x0000, 0x7c00});
  for (Isa level : levels()) {
    std::vector<Float16> narrow(values.size());
    simd(level).to_f16(values.data(), narrow.data(), values.size());
    for (std::size_t i = 0; i < values.size(); ++i) {
      ASSERT_EQ(narrow[i].bits, wanted[i]) << name_of(level) << " " << values[i];
      ASSERT_EQ(float16_of(-values[i]).bits, wanted[i] | 0x8000) << values[i];
    }
  }
}

TEST(Elementwise, ChunkSquareSumIsOneOrderAtEveryLevel) {
  for (std::size_t count : {std::size_t{1}, std::size_t{17}, std::size_t{4095}, kNormChunk}) {
    const auto values = normal(count, 3);
    const double wanted = simd(Isa::Generic).square_sum(values.data(), count);
    double plain = 0;
    for (float value : values) plain += double{value} * value;
    EXPECT_NEAR(wanted, plain, 1e-12 * plain);
    for (Isa level : levels()) EXPECT_EQ(simd(level).square_sum(values.data(), count), wanted);
    const std::vector<double> wide(values.begin(), values.end());
    EXPECT_EQ(chunk_square_sum(wide.data(), count), wanted);
  }
}

}  // namespace
}  // namespace trireme::kernel
