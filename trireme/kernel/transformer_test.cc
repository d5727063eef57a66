// Compares the vector kernels of every instruction set with the fp64 loops, and with themselves at
// other positions.
#include "trireme/kernel/transformer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "trireme/kernel/simd.h"
#include "trireme/kernel/transformer_f64.h"
#include "trireme/testing/kernel_levels.h"

namespace trireme::kernel {
namespace {

using trireme::testing::levels;

std::vector<float> normal(std::size_t count, float scale, unsigned seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> draw(0.0f, scale);
  std::vector<float> values(count);
  for (float& value : values) value = draw(generator);
  return values;
}
std::vector<double> wide(const std::vector<float>& values) {
  return {values.begin(), values.end()};
}

TEST(TransformerKernels, GatesAreAccurateAndDoNotDependOnTheRow) {
  for (const std::size_t width : {1, 7, 16, 50}) {
    const std::size_t rows = 9;
    const auto x = normal(2 * rows * width, 4.0f, 1), dy = normal(rows * width, 1.0f, 2);
    const auto x64 = wide(x), dy64 = wide(dy);
    for (const Gate gate : {Gate::Silu, Gate::Gelu}) {
      std::vector<double> y64(dy.size()), dx64(x.size());
      f64::gated(gate, x64.data(), y64.data(), rows, width);
      f64::gated_backward(gate, x64.data(), dy64.data(), dx64.data(), rows, width);
      for (const Isa level : levels()) {
        std::vector<float> y(dy.size()), dx(x.size()), one(2 * width);
        simd(level).f32.gated(gate, x.data(), y.data(), rows, width);
        simd(level).f32.gated_backward(gate, x.data(), dy.data(), dx.data(), rows, width);
        for (std::size_t i = 0; i < y.size(); ++i)
          EXPECT_NEAR(y[i], y64[i], 2e-6 * std::abs(y64[i]) + 1e-6) << name_of(level);
        for (std::size_t i = 0; i < dx.size(); ++i)
          EXPECT_NEAR(dx[i], dx64[i], 4e-6 * std::abs(dx64[i]) + 1e-5) << name_of(level);
        simd(level).f32.gated(gate, x.data() + 6 * width, one.data(), 1, width);
        EXPECT_EQ(std::memcmp(one.data(), y.data() + 3 * width, 4 * width), 0) << name_of(level);
        simd(level).f32.gated_backward(gate, x.data() + 6 * width, dy.data() + 3 * width,
                                       one.data(), 1, width);
        EXPECT_EQ(std::memcmp(one.data(), dx.data() + 6 * width, 8 * width), 0) << name_of(level);
      }
    }
  }
}

// Outputs of a layer that diverges.
TEST(TransformerKernels, DerivativesOfGatesAreZeroOrOneFarFromZero) {
  const std::vector<float> far = {11.0f, 1e5f, 1e12f, 1e13f, 1e20f, 1e30f, 1e38f, HUGE_VALF};
  for (const float value : far) {
    for (const float sign : {-1.0f, 1.0f}) {
      const float wanted = sign > 0 ? 1.0f : 0.0f;
      const std::vector<float> x = {sign * value, 1.0f}, dy = {1.0f};
      const std::vector<double> x64 = wide(x), dy64 = wide(dy);
      for (const Gate gate : {Gate::Silu, Gate::Gelu}) {
        std::vector<double> dx64(2);
        f64::gated_backward(gate, x64.data(), dy64.data(), dx64.data(), 1, 1);
        EXPECT_NEAR(dx64[0], wanted, 2e-4) << x[0];
        for (const Isa level : levels()) {
          std::vector<float> dx(2);
          simd(level).f32.gated_backward(gate, x.data(), dy.data(), dx.data(), 1, 1);
          EXPECT_NEAR(dx[0], wanted, 2e-4) << name_of(level) << " " << x[0];
        }
      }
    }
  }
}

TEST(TransformerKernels, GeluIsAccurateAndDoesNotDependOnThePosition) {
  const auto x = normal(1000, 4.0f, 1), dy = normal(1000, 1.0f, 2);
  const auto x64 = wide(x), dy64 = wide(dy);
  std::vector<double> y64(1000), dx64(1000);
  f64::gelu(x64.data(), y64.data(), 1000);
  f64::gelu_backward(x64.data(), dy64.data(), dx64.data(), 1000);
  for (Isa level : levels()) {
    std::vector<float> y(1000), dx(1000), part(1000);
    simd(level).f32.gelu(x.data(), y.data(), 1000);
    simd(level).f32.gelu_backward(x.data(), dy.data(), dx.data(), 1000);
    for (std::size_t i = 0; i < 1000; ++i) {
      EXPECT_NEAR(y[i], y64[i], 1e-6 * std::abs(y64[i]) + 1e-7) << name_of(level) << " x " << x[i];
      EXPECT_NEAR(dx[i], dx64[i], 2e-6) << name_of(level) << " x " << x[i];
    }
    for (std::size_t begin : {1, 5, 13}) {
      for (std::size_t count : {1, 3, 18, 31}) {
        simd(level).f32.gelu(x.data() + begin, part.data(), count);
        EXPECT_EQ(std::memcmp(part.data(), y.data() + begin, 4 * count), 0) << name_of(level);
        simd(level).f32.gelu_backward(x.data() + begin, dy.data() + begin, part.data(), count);
        EXPECT_EQ(std::memcmp(part.data(), dx.data() + begin, 4 * count), 0) << name_of(level);
      }
    }
  }
}

TEST(TransformerKernels, CausalSoftmaxAndItsGradient) {
  constexpr std::size_t kRows = 5, kFirst = 30, kWidth = kFirst + kRows, kStride = 40;
  const auto scores = normal(kRows * kStride, 5.0f, 3), dp = normal(kRows * kStride, 1.0f, 4);
  const auto scores64 = wide(scores), dp64 = wide(dp);
  std::vector<double> p64(kRows * kStride, -1), ds64(kRows * kStride);
  f64::causal_softmax(scores64.data(), kStride, p64.data(), kStride, kFirst, kRows, kWidth, 0.3);
  f64::softmax_backward(p64.data(), kStride, dp64.data(), kStride, ds64.data(), kStride, kRows,
                        kWidth, 0.3);
  for (Isa level : levels()) {
    const auto& table = simd(level).f32;
    std::vector<float> p = scores, ds(kRows * kStride);
    table.causal_softmax(p.data(), kStride, p.data(), kStride, kFirst, kRows, kWidth, 0.3);
    table.softmax_backward(p.data(), kStride, dp.data(), kStride, ds.data(), kStride, kRows, kWidth,
                           0.3);
    for (std::size_t row = 0; row < kRows; ++row) {
      for (std::size_t i = 0; i < kWidth; ++i) {
        const std::size_t at = row * kStride + i;
        EXPECT_NEAR(p[at], p64[at], 1e-6) << name_of(level);
        EXPECT_NEAR(ds[at], ds64[at], 1e-6) << name_of(level);
        if (i > kFirst + row) {
          EXPECT_EQ(p[at], 0.0f);
        }
      }
      EXPECT_EQ(p[row * kStride + kWidth], scores[row * kStride + kWidth]) << "wrote beyond";
    }
    // A row computed alone has the same bits as among other rows.
    std::vector<float> alone(kStride);
    table.causal_softmax(scores.data() + 2 * kStride, kStride, alone.data(), kStride, kFirst + 2, 1,
                         kWidth, 0.3);
    EXPECT_EQ(std::memcmp(alone.data(), p.data() + 2 * kStride, 4 * kWidth), 0) << name_of(level);
  }
}

// A softmax and its gradient in two parts equal the whole ones.
TEST(TransformerKernels, SoftmaxInParts) {
  constexpr std::size_t kRows = 5, kFirst = 20, kWidth = kFirst + kRows, kStride = 40;
  const auto scores = normal(kRows * kStride, 5.0f, 13), dp = normal(kRows * kStride, 1.0f, 14);
  const auto scores64 = wide(scores), dp64 = wide(dp);
  std::vector<double> p64(kRows * kStride), ds64(kRows * kStride);
  f64::causal_softmax(scores64.data(), kStride, p64.data(), kStride, kFirst, kRows, kWidth, 0.3);
  f64::softmax_backward(p64.data(), kStride, dp64.data(), kStride, ds64.data(), kStride, kRows,
                        kWidth, 0.3);
  for (const std::size_t cut : {1, 7, 16, 20}) {
    const auto check = [&]<class S>(const std::vector<S>& all, const std::vector<S>& dall,
                                    double tolerance, auto maxima, auto exponents, auto gradient,
                                    const std::string& where) {
      std::vector<S> p(kRows * kStride, S{-1}), ds(kRows * kStride);
      std::vector<S> largest(2 * kRows), sums(2 * kRows), shift(kRows), dots(kRows);
      // The first part is seen by all rows, the second is causal.
      maxima(all.data(), kStride, largest.data(), cut, kRows, cut, 0.3);
      maxima(all.data() + cut, kStride, largest.data() + kRows, kFirst - cut, kRows, kWidth - cut,
             0.3);
      for (std::size_t row = 0; row < kRows; ++row)
        shift[row] = std::max(largest[row], largest[kRows + row]);
      const auto both = [&](bool add_up) {
        exponents(all.data(), kStride, p.data(), kStride, shift.data(),
                  add_up ? sums.data() : nullptr, cut, kRows, cut, 0.3);
        exponents(all.data() + cut, kStride, p.data() + cut, kStride, shift.data(),
                  add_up ? sums.data() + kRows : nullptr, kFirst - cut, kRows, kWidth - cut, 0.3);
      };
      both(true);
      for (std::size_t row = 0; row < kRows; ++row)
        shift[row] += std::log(sums[row] + sums[kRows + row]);  // now the logsumexp
      both(false);
      for (std::size_t row = 0; row < kRows; ++row)
        for (std::size_t i = 0; i < kWidth; ++i)
          dots[row] += p[row * kStride + i] * dall[row * kStride + i];
      gradient(p.data(), kStride, dall.data(), kStride, dots.data(), ds.data(), kStride, kRows,
               kWidth, 0.3);
      for (std::size_t at = 0; at < kRows * kStride; ++at) {
        const std::size_t column = at % kStride;
        if (column >= kWidth) {
          EXPECT_EQ(p[at], S{-1}) << "wrote beyond";
          continue;
        }
        EXPECT_NEAR(p[at], p64[at], tolerance) << where << " cut at " << cut;
        EXPECT_NEAR(ds[at], ds64[at], tolerance) << where << " cut at " << cut;
        if (column > kFirst + at / kStride) {
          EXPECT_EQ(p[at], S{0});
        }
      }
    };
    check(scores64, dp64, 1e-14, f64::row_maxima, f64::shifted_exponents,
          f64::softmax_part_backward, "fp64");
    for (Isa level : levels())
      check(scores, dp, 1e-6, simd(level).f32.row_maxima, simd(level).f32.shifted_exponents,
            simd(level).f32.softmax_part_backward, std::string(name_of(level)));
  }
}

TEST(TransformerKernels, LayerNormWithUpdateAndItsGradient) {
  for (std::size_t width : {1, 7, 16, 50, 128}) {
    constexpr std::size_t kRows = 3;
    const auto x = normal(kRows * width, 2.0f, 5), update = normal(kRows * width, 1.0f, 6);
    const auto weight = normal(width, 1.0f, 7), dy = normal(kRows * width, 1.0f, 8);
    const auto x64 = wide(x), update64 = wide(update), weight64 = wide(weight), dy64 = wide(dy);
    std::vector<double> h64(x.size()), y64(x.size()), dx64(x.size()), mean64(kRows), rstd64(kRows);
    std::vector<double> dw64(width);
    f64::layer_norm({.x = x64.data(),
                     .weight = weight64.data(),
                     .update = update64.data(),
                     .h = h64.data(),
                     .y = y64.data(),
                     .mean = mean64.data(),
                     .rstd = rstd64.data(),
                     .rows = kRows,
                     .width = width});
    f64::layer_norm_backward({.dy = dy64.data(),
                              .dstream = x64.data(),
                              .h = h64.data(),
                              .weight = weight64.data(),
                              .mean = mean64.data(),
                              .rstd = rstd64.data(),
                              .dx = dx64.data(),
                              .dweight = dw64.data(),
                              .rows = kRows,
                              .width = width});
    for (Isa level : levels()) {
      std::vector<float> h(x.size()), y(x.size()), dx(x.size()), mean(kRows), rstd(kRows),
          dw(width);
      simd(level).f32.layer_norm({.x = x.data(),
                                  .weight = weight.data(),
                                  .update = update.data(),
                                  .h = h.data(),
                                  .y = y.data(),
                                  .mean = mean.data(),
                                  .rstd = rstd.data(),
                                  .rows = kRows,
                                  .width = width});
      simd(level).f32.layer_norm_backward({.dy = dy.data(),
                                           .dstream = x.data(),
                                           .h = h.data(),
                                           .weight = weight.data(),
                                           .mean = mean.data(),
                                           .rstd = rstd.data(),
                                           .dx = dx.data(),
                                           .dweight = dw.data(),
                                           .rows = kRows,
                                           .width = width});
      for (std::size_t i = 0; i < x.size(); ++i) {
        EXPECT_NEAR(h[i], h64[i], 1e-6) << name_of(level);
        EXPECT_NEAR(y[i], y64[i], 1e-5) << name_of(level) << " width " << width;
        // A single column has no variance: rstd is 316 and magnifies rounding errors.
        EXPECT_NEAR(dx[i], dx64[i], width == 1 ? 1e-3 : 1e-5)
            << name_of(level) << " width " << width;
      }
      for (std::size_t i = 0; i < width; ++i) EXPECT_NEAR(dw[i], dw64[i], 1e-5) << name_of(level);
    }
  }
}

TEST(TransformerKernels, ExponentsOfARowForTheLoss) {
  for (std::size_t width : {1, 15, 65, 256}) {
    const auto logits = normal(2 * width, 3.0f, 9);
    const auto logits64 = wide(logits);
    std::vector<double> largest64(2), sums64(2);
    f64::row_exponents(logits64.data(), largest64.data(), sums64.data(), 2, width);
    for (Isa level : levels()) {
      std::vector<float> largest(2), sums(2);
      simd(level).f32.row_exponents(logits.data(), largest.data(), sums.data(), 2, width);
      for (std::size_t row = 0; row < 2; ++row) {
        EXPECT_EQ(largest[row], static_cast<float>(largest64[row]));
        EXPECT_NEAR(sums[row], sums64[row], 1e-5 * sums64[row]) << name_of(level);
      }
    }
  }
}

TEST(TransformerKernels, Bf16IsFp32RoundedOnce) {
  const auto values = normal(100, 2.0f, 10);
  for (Isa level : levels()) {
    std::vector<BFloat16> x(100), y(100), rounded(100);
    std::vector<float> exact(100), result(100);
    simd(level).to_bf16(values.data(), x.data(), 100);
    simd(level).bf16_to_f32(x.data(), exact.data(), 100);
    simd(level).bf16.gelu(x.data(), y.data(), 100);
    simd(level).f32.gelu(exact.data(), result.data(), 100);
    simd(level).to_bf16(result.data(), rounded.data(), 100);
    EXPECT_EQ(std::memcmp(y.data(), rounded.data(), 200), 0) << name_of(level);
  }
}

TEST(TransformerKernels, Fp16IsFp32RoundedOnce) {
  const auto values = normal(100, 2.0f, 10);
  for (Isa level : levels()) {
    std::vector<Float16> x(100), y(100), rounded(100);
    std::vector<float> exact(100), result(100);
    simd(level).to_f16(values.data(), x.data(), 100);
    simd(level).f16_to_f32(x.data(), exact.data(), 100);
    simd(level).f16.gelu(x.data(), y.data(), 100);
    simd(level).f32.gelu(exact.data(), result.data(), 100);
    simd(level).to_f16(result.data(), rounded.data(), 100);
    EXPECT_EQ(std::memcmp(y.data(), rounded.data(), 200), 0) << name_of(level);
  }
}

}  // namespace
}  // namespace trireme::kernel
