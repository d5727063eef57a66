// The host's build of the GPU's leaves and sums of squares gives the CPU's bits.
#include "trireme/kernel/cuda/flat.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "trireme/kernel/cuda/kernel_image.h"
#include "trireme/kernel/elementwise.h"
#include "trireme/kernel/leaf_sum.h"
#include "trireme/testing/gpu/kernels_on_host.h"

namespace trireme::kernel::cuda {
namespace {

template <class T>
std::vector<T> random_values(std::size_t count, unsigned seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  std::vector<T> values(count);
  for (T& value : values)
    value = Codec<T>::encode(generator() % 11 == 0 ? -0.0f : normal(generator));
  return values;
}

template <class T>
void expect_the_cpus_leaf(bool with_gradient, std::size_t num_open) {
  using Sum = typename LeafArguments<T>::Sum;
  constexpr std::size_t kCount = 5000;
  const auto gradient = random_values<T>(kCount, 1);
  std::vector<std::vector<Sum>> siblings;
  std::vector<const void*> open;
  bool not_finite = false;
  std::vector<Sum> got(kCount), wanted(kCount);
  LeafArguments<T> call{
      .weight = Sum(0.3), .out = got.data(), .count = kCount, .not_finite = &not_finite};
  if (with_gradient) call.gradient = gradient.data();
  for (unsigned k = 0; k < num_open; ++k) siblings.push_back(random_values<Sum>(kCount, 2 + k));
  for (const auto& sibling : siblings) {
    open.push_back(sibling.data());
    call.open[call.num_open++] = sibling.data();
  }
  testing::kernel_on_host(kernel_name("leaf", DTypeOf<T>::value))->run(&call);
  EXPECT_TRUE(add_leaf(call.gradient, DTypeOf<T>::value, 0.3, open, wanted.data(), kCount));
  EXPECT_FALSE(not_finite);
  EXPECT_EQ(std::memcmp(got.data(), wanted.data(), kCount * sizeof(Sum)), 0)
      << name_of(DTypeOf<T>::value) << ", " << num_open << " siblings";
}

TEST(GpuFlat, ALeafGetsTheCpusBits) {
  for (const std::size_t num_open : {0, 1, 5}) {
    for (const bool with_gradient : {true, false}) {
      expect_the_cpus_leaf<double>(with_gradient, num_open);
      expect_the_cpus_leaf<float>(with_gradient, num_open);
      expect_the_cpus_leaf<BFloat16>(with_gradient, num_open);
      expect_the_cpus_leaf<Float16>(with_gradient, num_open);
    }
  }
}

TEST(GpuFlat, ALeafSaysThatASumIsNotFinite) {
  for (const float bad : {INFINITY, -INFINITY, NAN, std::numeric_limits<float>::max()}) {
    std::vector<float> gradient(700, 1), out(700);
    gradient[650] = bad;
    bool not_finite = false;
    const LeafArguments<float> call{.gradient = gradient.data(),
                                    .weight = 2,
                                    .out = out.data(),
                                    .count = 700,
                                    .not_finite = &not_finite};
    testing::kernel_on_host("trireme_leaf_f32")->run(&call);
    EXPECT_TRUE(not_finite) << bad;
  }
}

template <class T>
void expect_the_cpus_squares(std::size_t count) {
  const auto values = random_values<T>(count, 3);
  SquaresArguments<T> call{.values = values.data(), .count = count, .chunk = kNormChunk};
  std::vector<double> sums(num_chunks(call) + 1, -1);
  call.sums = sums.data();
  testing::kernel_on_host(kernel_name("squares", DTypeOf<T>::value))->run(&call);
  for (std::size_t i = 0; i < num_chunks(call); ++i) {
    const std::size_t begin = i * kNormChunk;
    EXPECT_EQ(sums[i], chunk_square_sum(values.data() + begin, std::min(kNormChunk, count - begin)))
        << "chunk " << i << " of " << count;
  }
  EXPECT_EQ(sums.back(), -1) << count;
}

TEST(GpuFlat, SquaresAreTheCpusSums) {
  for (const std::size_t count :
       {std::size_t{1}, std::size_t{17}, kNormChunk, 2 * kNormChunk + 5, 41 * kNormChunk - 1}) {
    expect_the_cpus_squares<float>(count);
    expect_the_cpus_squares<double>(count);
  }
}

}  // namespace
}  // namespace trireme::kernel::cuda
