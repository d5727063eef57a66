// The host's build of the GPU's update gives the bits of kernel::apply().
#include "trireme/kernel/cuda/update.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <random>
#include <set>
#include <span>
#include <vector>

#include "trireme/testing/gpu/kernels_on_host.h"
#include "trireme/testing/update_rules.h"

namespace trireme::kernel::cuda {
namespace {

// More slices than a call takes, one of them larger than what a block takes.
std::vector<std::size_t> counts() {
  std::vector<std::size_t> all{3, 0, 2 * kUpdateChunk + 77, 1};
  while (all.size() < kMostSlices + 5u) all.push_back(all.size() * 37 % 500);
  return all;
}

template <class T>
using Arrays = std::vector<std::vector<T>>;

// Positive from the third array on, as means of squares are.
template <class T>
Arrays<T> random_arrays(int arrays, std::size_t count, unsigned seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> draw;
  Arrays<T> all(static_cast<std::size_t>(arrays), std::vector<T>(count));
  for (std::size_t k = 0; k < all.size(); ++k)
    for (T& value : all[k])
      value = k > 1 ? std::abs(draw(generator)) : draw(generator) * (generator() % 9 == 0 ? 0 : 1);
  return all;
}

template <class T, class Rule>
void expect_as_on_the_cpu(const Rule& rule) {
  std::vector<Arrays<T>> cpu, gpu;
  std::vector<UpdateSlice> slices;
  for (const std::size_t count : counts()) {
    cpu.push_back(
        random_arrays<T>(Rule::kShape.arrays(), count, static_cast<unsigned>(cpu.size())));
    gpu.push_back(cpu.back());
  }
  for (std::size_t i = 0; i < cpu.size(); ++i) {
    UpdateSlice& slice = slices.emplace_back();
    slice.count = gpu[i].front().size();
    for (std::size_t k = 0; k < gpu[i].size(); ++k) slice.arrays[k] = gpu[i][k].data();
    testing::update_on_cpu(rule, cpu[i]);
  }
  const auto calls = update_arguments(rule, slices);
  EXPECT_EQ(calls.size(), 2u);
  const auto* const kernel = testing::kernel_on_host(
      std::is_same_v<T, float> ? "trireme_update_f32" : "trireme_update_f64");
  for (const UpdateArguments& call : calls) kernel->run(&call);
  for (std::size_t i = 0; i < cpu.size(); ++i)
    for (std::size_t k = 0; k < cpu[i].size(); ++k)
      EXPECT_TRUE(std::ranges::equal(std::as_bytes(std::span(cpu[i][k])),
                                     std::as_bytes(std::span(gpu[i][k]))))
          << typeid(Rule).name() << " slice " << i << " array " << k;
}

TEST(Update, GivesTheCpusBits) {
  const bool fused = isa() != Isa::Generic;
  std::apply(
      [&](const auto&... rule) {
        (expect_as_on_the_cpu<double>(rule), ...);
        if (fused) (expect_as_on_the_cpu<float>(rule), ...);
      },
      testing::update_rules());
}

template <class... Rule>
std::set<std::uint32_t> numbers(const std::tuple<Rule...>&) {
  return {number_of<Rule>(AllRules())...};
}
template <class... Rule>
std::size_t how_many(RuleList<Rule...>) {
  return sizeof...(Rule);
}

TEST(Update, EveryRuleIsTested) {
  EXPECT_EQ(numbers(testing::update_rules()).size(), how_many(AllRules()));
}

TEST(Update, TheSignOfAZeroOrANaNStays) {
  const LionRule lion{.rate = 0.5};
  const std::vector<std::vector<float>> before = {
      {std::nanf(""), -0.0f, 0.0f}, {2, -0.0f, -0.0f}, {0, -0.0f, 0.0f}};
  std::vector<std::vector<float>> cpu = before, gpu = before;
  testing::update_on_cpu(lion, cpu);
  const UpdateSlice slice{.arrays = {gpu[0].data(), gpu[1].data(), gpu[2].data()}, .count = 3};
  const auto calls = update_arguments(lion, {&slice, 1});
  testing::kernel_on_host("trireme_update_f32")->run(&calls.front());
  for (const auto& weights : {cpu[1], gpu[1]}) {
    EXPECT_TRUE(std::isnan(weights[0]));
    EXPECT_EQ(weights[1], 0);
  }
  for (const std::size_t i : {1u, 2u}) EXPECT_EQ(std::signbit(gpu[1][i]), std::signbit(cpu[1][i]));
}

TEST(Update, AnArrayThatIsNotThereIsLeftOut) {
  const SgdRule plain{.rate = 0.5};
  float gradient = 2, weight = 3;
  const UpdateSlice slice{.arrays = {&gradient, &weight, nullptr}, .count = 1};
  const auto calls = update_arguments(plain, {&slice, 1});
  testing::kernel_on_host("trireme_update_f32")->run(&calls.front());
  EXPECT_EQ(weight, 2);
}

}  // namespace
}  // namespace trireme::kernel::cuda
