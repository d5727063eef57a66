// Optimizers' rules as a kernel: by the GPU's real one, too, where tools/gpu_pass runs this.
#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <vector>

#include "tests/gpu/gpu_ranks.h"
#include "trireme/kernel/cuda/kernel_image.h"
#include "trireme/kernel/cuda/update.h"
#include "trireme/kernel/isa.h"
#include "trireme/testing/update_rules.h"

namespace trireme::update_test {
namespace {

using test::Bytes, test::GpuRank, test::OnGpu, test::run_gpus;

constexpr std::size_t kCounts[] = {1000, 40'000, 7};

template <class T>
std::vector<T> drawn(std::size_t count, unsigned seed, bool positive) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> draw;
  std::vector<T> values(count);
  for (T& value : values) value = positive ? std::abs(draw(generator)) : draw(generator);
  return values;
}

template <class T>
Bytes bytes_of(const std::vector<T>& values) {
  const auto bytes = std::as_bytes(std::span(values));
  return {bytes.begin(), bytes.end()};
}

template <class T, class Rule>
void expect_as_on_the_cpu(GpuRank& rank, const Rule& rule) {
  std::vector<std::vector<std::vector<T>>> wanted;
  std::vector<std::vector<OnGpu>> on_gpu;
  std::vector<kernel::cuda::UpdateSlice> slices;
  for (const std::size_t count : kCounts) {
    auto& arrays = wanted.emplace_back();
    auto& copies = on_gpu.emplace_back();
    auto& slice = slices.emplace_back(kernel::cuda::UpdateSlice{.count = count});
    for (int k = 0; k < Rule::kShape.arrays(); ++k) {
      arrays.push_back(drawn<T>(count, static_cast<unsigned>(k), k > 1));
      copies.push_back(rank.on_gpu(bytes_of(arrays.back())));
      slice.arrays[k] = copies.back().data();
    }
    testing::update_on_cpu(rule, arrays);
  }
  void* const stream = rank.gpu->make_stream();
  for (const auto& call : kernel::cuda::update_arguments(rule, slices))
    rank.gpu->launch(kernel::cuda::kernel_name("update", DTypeOf<T>::value), &call, call.num_chunks,
                     stream);
  test::finish(*rank.gpu, stream);
  for (std::size_t i = 0; i < slices.size(); ++i)
    for (std::size_t k = 0; k < wanted[i].size(); ++k)
      EXPECT_EQ(on_gpu[i][k].bytes(), bytes_of(wanted[i][k]))
          << typeid(Rule).name() << " slice " << i << " array " << k;
}

TEST(GpuUpdate, EveryRuleGivesTheCpusBits) {
  run_gpus(1, [](GpuRank& rank) {
    std::apply(
        [&](const auto&... rule) {
          (expect_as_on_the_cpu<double>(rank, rule), ...);
          if (kernel::isa() != kernel::Isa::Generic) (expect_as_on_the_cpu<float>(rank, rule), ...);
        },
        testing::update_rules());
  });
}

}  // namespace
}  // namespace trireme::update_test
