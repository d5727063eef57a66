#include "trireme/kernel/optimizers/apply.h"

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

struct Kernel {
  std::string name;
  std::function<void(const SimdTable&, Memory<float>&, std::size_t, std::size_t)> fp32;
  std::function<void(Memory<double>&)> fp64;
};

// A rule of `shape` over these arrays of Memory. Writes the compute copy if the rule has a weight.
template <class Rule>
Kernel kernel(const char* name, const Rule& rule, std::vector<int> arrays, bool weight) {
  const auto split = [arrays](auto& memory, std::size_t i, auto& in, auto& out) {
    for (std::size_t k = 0; k < arrays.size(); ++k) {
      auto* const at = memory.at(arrays[k], i);
      k < static_cast<std::size_t>(Rule::kShape.in) ? in.push_back(at) : out.push_back(at);
    }
  };
  return {name,
          [=](const SimdTable& t, Memory<float>& m, std::size_t i, std::size_t n) {
            std::vector<const float*> in;
            std::vector<float*> out;
            split(m, i, in, out);
            t.rules.of<Rule>()(rule, in.data(), out.data(), weight ? &m.compute[i] : nullptr, n);
          },
          [=](Memory<double>& m) {
            std::vector<const double*> in;
            std::vector<double*> out;
            split(m, 0, in, out);
            apply(rule, in.data(), out.data(), nullptr, kCount);
          }};
}

const std::vector<Kernel>& kernels() {
  static const std::vector<Kernel> all = {
      kernel("adamw", AdamWRule{.scale = 0.3, .decay = 0.999, .step_size = 0.01, .sqrt_bias2 = 0.5},
             {0, 1, 2, 3}, true),
      kernel("sgd",
             SgdRule{.scale = 0.3,
                     .weight_decay = 0.1,
                     .momentum = 0.9,
                     .one_minus_dampening = 0.75,
                     .rate = 0.1,
                     .nesterov = true,
                     .first = false},
             {0, 1, 2}, true),
      kernel("lion", LionRule{.scale = 0.3, .decay = 0.99, .rate = 0.125}, {0, 1, 2}, true),
      kernel("adagrad", AdagradRule{.scale = 0.3, .weight_decay = 0.1, .rate = 0.1}, {0, 1, 3},
             true),
      kernel("ftrl", FtrlRule{.scale = 0.3, .rate = 0.1, .threshold = 0.02, .ridge = 0.1},
             {0, 1, 3, 2}, true),
      kernel("moments", LambMoments{.scale = 0.3}, {0, 2, 3}, false),
      kernel("lamb_direction", LambDirection{.bias1 = 0.3, .sqrt_bias2 = 0.2, .weight_decay = 0.1},
             {1, 2, 3, 4}, false),
      kernel("factored_direction", FactoredDirection{.scale = 0.3, .row = 0.7, .floor = 0.05},
             {0, 3, 4}, false),
      kernel("average_squares", AverageSquares{.scale = 0.3, .blend = 0.25}, {0, 3}, false),
      kernel("descend", Descend{.decay = 0.99, .rate = 0.1}, {2, 1}, true),
      {"add_squares",
       [](const SimdTable& t, Memory<float>& m, std::size_t i, std::size_t n) {
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
      kernel.fp32(simd(level), whole, 0, kCount);
      EXPECT_FALSE(same(whole, untouched, 0, kCount));
      for (std::size_t begin = 0; begin < 40; ++begin) {
        for (std::size_t end : {begin + 1, begin + 7, begin + 19, begin + 33}) {
          Memory<float> part;
          kernel.fp32(simd(level), part, begin, end - begin);
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
      kernel.fp32(simd(level), got, 0, kCount);
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
    const float* const in[] = {before.at(0, 0)};
    float* const out[] = {after.at(1, 0), after.at(2, 0)};
    simd(level).rules.of<LionRule>()({.rate = 0.125}, in, out, nullptr, kCount);
    EXPECT_EQ(after.arrays[1][7], before.arrays[1][7]) << name_of(level);
    for (const std::size_t i : {std::size_t{8}, std::size_t{9}})
      EXPECT_NEAR(std::abs(after.arrays[1][i] - before.arrays[1][i]), 0.125, 1e-6)
          << name_of(level);
  }
}

TEST(OptimizerKernels, AdafactorsDirectionOfANaNIsOne) {
  for (const Isa level : levels()) {
    Memory<float> memory;
    memory.arrays[3][3] = std::nanf("");
    const float* const in[] = {memory.at(0, 0), memory.at(3, 0)};
    float* const out[] = {memory.at(4, 0)};
    simd(level).rules.of<FactoredDirection>()({.floor = 0.05}, in, out, nullptr, kCount);
    for (std::size_t i = 0; i < kCount; ++i)
      EXPECT_EQ(std::isnan(memory.arrays[4][i]), i == 3) << name_of(level) << " " << i;
  }
}

TEST(OptimizerKernels, LionKeepsANaN) {
  for (const Isa level : levels()) {
    Memory<float> memory;
    memory.arrays[0][3] = std::nanf("");
    const float* const in[] = {memory.at(0, 0)};
    float* const out[] = {memory.at(1, 0), memory.at(2, 0)};
    simd(level).rules.of<LionRule>()({.rate = 0.125}, in, out, nullptr, kCount);
    for (std::size_t i = 0; i < kCount; ++i)
      EXPECT_EQ(std::isnan(memory.arrays[1][i]), i == 3) << name_of(level) << " " << i;
  }
}

TEST(OptimizerKernels, TheComputeCopyIsTheWeightRounded) {
  for (const Isa level : levels()) {
    Memory<float> memory;
    std::vector<BFloat16> rounded(kCount);
    const float* const in[] = {memory.at(2, 0)};
    float* const out[] = {memory.at(1, 0)};
    simd(level).rules.of<Descend>()({.decay = 0.99, .rate = 0.1}, in, out, memory.compute.data(),
                                    kCount);
    simd(level).to_bf16(memory.at(1, 0), rounded.data(), kCount);
    EXPECT_TRUE(same(memory.compute, rounded, 0, kCount)) << name_of(level);
  }
}

}  // namespace
}  // namespace trireme::kernel
