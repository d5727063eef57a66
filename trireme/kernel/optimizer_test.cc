#include "trireme/kernel/optimizer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <random>
#include <vector>

#include "trireme/kernel/simd.h"
#include "trireme/testing/kernel_levels.h"

namespace trireme::kernel {
namespace {

using trireme::testing::levels;

std::vector<double> normal(std::size_t count, unsigned seed, bool positive = false) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> draw;
  std::vector<double> values(count);
  for (double& value : values) value = positive ? std::abs(draw(generator)) : draw(generator);
  return values;
}

// The arrays that kernels read and write. 0: gradient, 1: weight, 2: m, 3: v, 4: out.
constexpr std::size_t kCount = 100;
template <class T>
struct Memory {
  std::vector<T> arrays[5];
  std::vector<double> sums = std::vector<double>(kCount, 0.5);
  std::vector<BFloat16> compute = std::vector<BFloat16>(kCount);
  Memory() {
    for (unsigned k = 0; k < 5; ++k) {
      const std::vector<double> values = normal(kCount, k, k == 3);
      arrays[k].assign(values.begin(), values.end());
    }
    arrays[0][7] = arrays[2][7] = 0;  // Lion: the sign of 0
    arrays[0][9] = T(1e-42);          // and of a denormal
    arrays[2][9] = 0;
  }
  T* at(int array, std::size_t i) { return arrays[array].data() + i; }
};

const AdamWNumbers kAdamW{.scale = 0.3, .decay = 0.999, .step_size = 0.01, .sqrt_bias2 = 0.5};
const SgdNumbers kSgd{.scale = 0.3,
                      .weight_decay = 0.1,
                      .momentum = 0.9,
                      .one_minus_dampening = 0.75,
                      .rate = 0.1,
                      .nesterov = true,
                      .first = false};
const LionNumbers kLion{.scale = 0.3, .decay = 0.99, .rate = 0.125};
const MomentNumbers kMoments{.scale = 0.3};
const LambNumbers kLamb{.bias1 = 0.3, .sqrt_bias2 = 0.2, .weight_decay = 0.1};
const FactoredNumbers kFactored{.scale = 0.3, .row = 0.7, .floor = 0.05};

struct Kernel {
  const char* name;
  std::function<void(const OptimizerTable&, Memory<float>&, std::size_t, std::size_t)> fp32;
  std::function<void(Memory<double>&)> fp64;
};

const std::vector<Kernel>& kernels() {
  static const std::vector<Kernel> all = {
      {"adamw",
       [](const OptimizerTable& t, Memory<float>& m, std::size_t i, std::size_t n) {
         t.adamw(kAdamW, m.at(0, i), m.at(1, i), m.at(2, i), m.at(3, i), &m.compute[i], n);
       },
       [](Memory<double>& m) {
         adamw(kAdamW, m.at(0, 0), m.at(1, 0), m.at(2, 0), m.at(3, 0), nullptr, kCount);
       }},
      {"sgd",
       [](const OptimizerTable& t, Memory<float>& m, std::size_t i, std::size_t n) {
         t.sgd(kSgd, m.at(0, i), m.at(1, i), m.at(2, i), &m.compute[i], n);
       },
       [](Memory<double>& m) { sgd(kSgd, m.at(0, 0), m.at(1, 0), m.at(2, 0), nullptr, kCount); }},
      {"lion",
       [](const OptimizerTable& t, Memory<float>& m, std::size_t i, std::size_t n) {
         t.lion(kLion, m.at(0, i), m.at(1, i), m.at(2, i), &m.compute[i], n);
       },
       [](Memory<double>& m) { lion(kLion, m.at(0, 0), m.at(1, 0), m.at(2, 0), nullptr, kCount); }},
      {"moments",
       [](const OptimizerTable& t, Memory<float>& m, std::size_t i, std::size_t n) {
         t.moments(kMoments, m.at(0, i), m.at(2, i), m.at(3, i), n);
       },
       [](Memory<double>& m) { moments(kMoments, m.at(0, 0), m.at(2, 0), m.at(3, 0), kCount); }},
      {"lamb_direction",
       [](const OptimizerTable& t, Memory<float>& m, std::size_t i, std::size_t n) {
         t.lamb_direction(kLamb, m.at(1, i), m.at(2, i), m.at(3, i), m.at(4, i), n);
       },
       [](Memory<double>& m) {
         lamb_direction(kLamb, m.at(1, 0), m.at(2, 0), m.at(3, 0), m.at(4, 0), kCount);
       }},
      {"factored_direction",
       [](const OptimizerTable& t, Memory<float>& m, std::size_t i, std::size_t n) {
         t.factored_direction(kFactored, m.at(0, i), m.at(3, i), m.at(4, i), n);
       },
       [](Memory<double>& m) {
         factored_direction(kFactored, m.at(0, 0), m.at(3, 0), m.at(4, 0), kCount);
       }},
      {"average_squares",
       [](const OptimizerTable& t, Memory<float>& m, std::size_t i, std::size_t n) {
         t.average_squares(0.3, 0.25, m.at(0, i), m.at(3, i), n);
       },
       [](Memory<double>& m) { average_squares(0.3, 0.25, m.at(0, 0), m.at(3, 0), kCount); }},
      {"descend",
       [](const OptimizerTable& t, Memory<float>& m, std::size_t i, std::size_t n) {
         t.descend(0.99, 0.1, m.at(2, i), m.at(1, i), &m.compute[i], n);
       },
       [](Memory<double>& m) { descend(0.99, 0.1, m.at(2, 0), m.at(1, 0), nullptr, kCount); }},
      {"add_squares",
       [](const OptimizerTable& t, Memory<float>& m, std::size_t i, std::size_t n) {
         t.add_squares(m.at(0, i), &m.sums[i], n);
       },
       [](Memory<double>& m) { add_squares(m.at(0, 0), m.sums.data(), kCount); }}};
  return all;
}

template <class T>
bool same(const std::vector<T>& a, const std::vector<T>& b, std::size_t begin, std::size_t end) {
  return std::memcmp(a.data() + begin, b.data() + begin, sizeof(T) * (end - begin)) == 0;
}
bool same(const Memory<float>& a, const Memory<float>& b, std::size_t begin, std::size_t end) {
  bool equal = same(a.sums, b.sums, begin, end) && same(a.compute, b.compute, begin, end);
  for (int k = 0; k < 5; ++k) equal = equal && same(a.arrays[k], b.arrays[k], begin, end);
  return equal;
}

TEST(OptimizerKernels, NothingDependsOnThePosition) {
  const Memory<float> untouched;
  for (const Kernel& kernel : kernels()) {
    for (const Isa level : levels()) {
      Memory<float> whole;
      kernel.fp32(simd(level).optimizer, whole, 0, kCount);
      EXPECT_FALSE(same(whole, untouched, 0, kCount));
      for (std::size_t begin = 0; begin < 40; ++begin) {
        for (std::size_t end : {begin + 1, begin + 7, begin + 19, begin + 33}) {
          Memory<float> part;
          kernel.fp32(simd(level).optimizer, part, begin, end - begin);
          EXPECT_TRUE(same(part, whole, begin, end))
              << kernel.name << " " << name_of(level) << " " << begin << " " << end;
          EXPECT_TRUE(same(part, untouched, end, kCount) && same(part, untouched, 0, begin))
              << kernel.name << " " << name_of(level) << " wrote beyond its end";
        }
      }
    }
  }
}

TEST(OptimizerKernels, EveryLevelComputesWhatFp64Does) {
  for (const Kernel& kernel : kernels()) {
    Memory<double> wanted;
    kernel.fp64(wanted);
    for (const Isa level : levels()) {
      Memory<float> got;
      kernel.fp32(simd(level).optimizer, got, 0, kCount);
      for (std::size_t i = 0; i < kCount; ++i) {
        for (int k = 0; k < 5; ++k)
          EXPECT_NEAR(got.arrays[k][i], wanted.arrays[k][i],
                      4e-6 * (1 + std::abs(wanted.arrays[k][i])))
              << kernel.name << " " << name_of(level) << " array " << k << " element " << i;
        EXPECT_NEAR(got.sums[i], wanted.sums[i], 1e-6 * wanted.sums[i]);
      }
    }
  }
}

TEST(OptimizerKernels, LionMovesByTheRateOrNotAtAll) {
  for (const Isa level : levels()) {
    Memory<float> before, after;
    simd(level).optimizer.lion({.rate = 0.125}, before.at(0, 0), after.at(1, 0), after.at(2, 0),
                               nullptr, kCount);
    EXPECT_EQ(after.arrays[1][7], before.arrays[1][7]) << name_of(level);
    for (const std::size_t i : {std::size_t{8}, std::size_t{9}})
      EXPECT_NEAR(std::abs(after.arrays[1][i] - before.arrays[1][i]), 0.125, 1e-6)
          << name_of(level);
  }
}

TEST(OptimizerKernels, TheComputeCopyIsTheWeightRounded) {
  for (const Isa level : levels()) {
    Memory<float> memory;
    std::vector<BFloat16> rounded(kCount);
    simd(level).optimizer.descend(0.99, 0.1, memory.at(2, 0), memory.at(1, 0),
                                  memory.compute.data(), kCount);
    simd(level).to_bf16(memory.at(1, 0), rounded.data(), kCount);
    EXPECT_TRUE(same(memory.compute, rounded, 0, kCount)) << name_of(level);
  }
}

}  // namespace
}  // namespace trireme::kernel
