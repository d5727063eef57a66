#include "trireme/kernel/elementwise.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "trireme/kernel/simd.h"

namespace trireme::kernel {
namespace {

std::vector<Isa> levels() {
  std::vector<Isa> all = {Isa::Generic};
  if (isa() >= Isa::Avx2) all.push_back(Isa::Avx2);
  if (isa() >= Isa::Avx512) all.push_back(Isa::Avx512);
  return all;
}

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
    simd(level).to_f32(narrow.data(), back.data(), values.size());
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      EXPECT_EQ(narrow[i].bits, wanted[i]) << name_of(level) << " " << values[i];
      const std::uint32_t bits = std::uint32_t{wanted[i]} << 16;
      EXPECT_EQ(std::memcmp(&back[i], &bits, 4), 0);
    }
    EXPECT_TRUE(std::isnan(back.back())) << name_of(level);
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
