// The kernels of norms, losses, dropout, leaves, sums of squares and folds: the GPU's, by its real driver where
// tools/gpu_pass runs this, against those that the host's compiler makes of the same text.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <random>
#include <span>
#include <vector>

#include "tests/gpu/gpu_ranks.h"
#include "trireme/kernel/cuda/cross_entropy.h"
#include "trireme/kernel/cuda/dropout.h"
#include "trireme/kernel/cuda/flat.h"
#include "trireme/kernel/cuda/fold.h"
#include "trireme/kernel/cuda/kernel_image.h"
#include "trireme/kernel/cuda/norm.h"
#include "trireme/testing/gpu/kernels_on_host.h"

namespace trireme::rows_test {
namespace {

using kernel::Combine, kernel::LeafRange, test::Bytes, test::GpuRank, test::OnGpu, test::run_gpus;
using namespace kernel::cuda;

template <class T>
Bytes drawn(std::size_t count, unsigned seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> draw;
  std::vector<T> values(count);
  for (T& value : values) value = Codec<T>::encode(draw(generator));
  const auto bytes = std::as_bytes(std::span(values));
  return {bytes.begin(), bytes.end()};
}
template <class T>
Bytes bits(std::size_t count, unsigned seed) {
  std::mt19937 generator(seed);
  Bytes bytes(count * sizeof(T));
  for (std::byte& byte : bytes) byte = std::byte(generator());
  return bytes;
}
Bytes targets(std::size_t count, std::int64_t width) {
  std::vector<std::int64_t> values(count);
  for (std::size_t i = 0; i < count; ++i)
    values[i] = static_cast<std::int64_t>(i * 7) % (width + 1) - 1;
  const auto bytes = std::as_bytes(std::span(values));
  return {bytes.begin(), bytes.end()};
}

using Arrays = std::vector<Bytes>;
/// An argument of a kernel for arrays at these addresses.
template <class Arguments>
using Call = std::function<Arguments(std::span<void* const> arrays)>;
using Same = std::function<bool(const Bytes& gpu, const Bytes& host)>;

bool same_bits(const Bytes& gpu, const Bytes& host) { return gpu == host; }
/// Functions such as exp may differ in the last bits.
template <class T>
bool near(const Bytes& gpu, const Bytes& host) {
  double difference = 0, size = 0;
  for (std::size_t at = 0; at < host.size(); at += sizeof(T)) {
    T a, b;
    std::memcpy(&a, &gpu[at], sizeof a);
    std::memcpy(&b, &host[at], sizeof b);
    const double x = Codec<T>::decode(a), y = Codec<T>::decode(b);
    difference += (x - y) * (x - y);
    size += y * y;
  }
  constexpr double kTolerance = sizeof(T) == 2 ? 2e-4 : 1e-6;
  return std::isfinite(difference) && std::sqrt(difference) <= kTolerance * std::sqrt(size);
}

template <class Arguments>
void expect_as_on_the_host(GpuRank& rank, const std::string& kernel, const Arrays& before,
                           const Call<Arguments>& call, const std::vector<Same>& same) {
  Arrays host = before;
  std::vector<OnGpu> gpu;
  std::vector<void*> host_arrays, gpu_arrays;
  for (Bytes& array : host) {
    gpu.push_back(rank.on_gpu(array));
    host_arrays.push_back(array.data());
    gpu_arrays.push_back(gpu.back().data());
  }
  const Arguments on_host = call(host_arrays), on_gpu = call(gpu_arrays);
  testing::kernel_on_host(kernel)->run(&on_host);
  void* const stream = rank.gpu->make_stream();
  rank.gpu->launch(kernel, &on_gpu, 5, stream);
  test::finish(*rank.gpu, stream);
  for (std::size_t i = 0; i < host.size(); ++i)
    EXPECT_TRUE((i < same.size() ? same[i] : same_bits)(gpu[i].bytes(), host[i]))
        << kernel << ", array " << i;
}

constexpr std::size_t kRows = 70;

template <class T>
void norms(GpuRank& rank, std::size_t width) {
  const auto name = [](const char* what) { return kernel_name(what, DTypeOf<T>::value); };
  const std::size_t count = kRows * width, sums = num_norm_sums(kRows) * width;
  expect_as_on_the_host<kernel::NormForward<T>>(
      rank, name("norm_forward"),
      {drawn<float>(count, 1), drawn<T>(count, 2), drawn<float>(width, 3), drawn<float>(width, 4),
       drawn<float>(count, 5), drawn<T>(count, 6), drawn<float>(kRows, 7), drawn<float>(kRows, 8)},
      [&](std::span<void* const> at) {
        return kernel::NormForward<T>{.x = static_cast<float*>(at[0]),
                                      .weight = static_cast<float*>(at[2]),
                                      .bias = static_cast<float*>(at[3]),
                                      .update = static_cast<T*>(at[1]),
                                      .h = static_cast<float*>(at[4]),
                                      .y = static_cast<T*>(at[5]),
                                      .mean = static_cast<float*>(at[6]),
                                      .rstd = static_cast<float*>(at[7]),
                                      .rows = kRows,
                                      .width = width};
      },
      {});
  for (const char* what : {"norm_backward", "norm_columns"})
    expect_as_on_the_host<kernel::NormBackward<T>>(
        rank, name(what),
        {drawn<T>(count, 1), drawn<float>(count, 2), drawn<float>(count, 3), drawn<float>(width, 4),
         drawn<float>(kRows, 5), drawn<float>(kRows, 6), drawn<float>(count, 7), drawn<T>(count, 8),
         drawn<float>(sums, 9), drawn<float>(sums, 10)},
        [&](std::span<void* const> at) {
          return kernel::NormBackward<T>{.dy = static_cast<T*>(at[0]),
                                         .dstream = static_cast<float*>(at[1]),
                                         .h = static_cast<float*>(at[2]),
                                         .weight = static_cast<float*>(at[3]),
                                         .mean = static_cast<float*>(at[4]),
                                         .rstd = static_cast<float*>(at[5]),
                                         .dx = static_cast<float*>(at[6]),
                                         .dupdate = static_cast<T*>(at[7]),
                                         .dweight = static_cast<float*>(at[8]),
                                         .dbias = static_cast<float*>(at[9]),
                                         .rows = kRows,
                                         .width = width};
        },
        {});
}

template <class T>
void losses(GpuRank& rank, std::size_t width, std::size_t pitch) {
  for (const char* what : {"loss_forward", "loss_backward"})
    expect_as_on_the_host<LossRows<T>>(
        rank, kernel_name(what, DTypeOf<T>::value),
        {drawn<T>(kRows * pitch, 1), targets(kRows, static_cast<std::int64_t>(width)),
         drawn<float>(kRows, 2), drawn<float>(kRows, 3), drawn<float>(1, 4),
         drawn<T>(kRows * pitch, 5)},
        [&](std::span<void* const> at) {
          return LossRows<T>{.logits = static_cast<T*>(at[0]),
                             .targets = static_cast<std::int64_t*>(at[1]),
                             .rows = kRows,
                             .width = width,
                             .pitch = pitch,
                             .logsumexp = static_cast<float*>(at[2]),
                             .losses = static_cast<float*>(at[3]),
                             .scale = static_cast<float*>(at[4]),
                             .dlogits = static_cast<T*>(at[5])};
        },
        {same_bits, same_bits, near<float>, near<float>, same_bits, near<T>});
}

template <class T>
void flat(GpuRank& rank) {
  constexpr std::size_t kCount = 30'001;
  using Sum = typename LeafArguments<T>::Sum;
  expect_as_on_the_host<LeafArguments<T>>(
      rank, kernel_name("leaf", DTypeOf<T>::value),
      {drawn<T>(kCount, 1), drawn<Sum>(kCount, 2), drawn<Sum>(kCount, 3), drawn<Sum>(kCount, 4),
       Bytes(1)},
      [](std::span<void* const> at) {
        return LeafArguments<T>{.gradient = static_cast<T*>(at[0]),
                                .weight = Sum(0.3),
                                .open = {static_cast<Sum*>(at[1]), static_cast<Sum*>(at[2])},
                                .num_open = 2,
                                .out = static_cast<Sum*>(at[3]),
                                .count = kCount,
                                .not_finite = static_cast<bool*>(at[4])};
      },
      {});
  expect_as_on_the_host<MaskArguments<T>>(rank, kernel_name("mask", DTypeOf<T>::value),
                                          {drawn<T>(kCount, 1)},
                                          [](std::span<void* const> at) {
                                            return MaskArguments<T>{.out = static_cast<T*>(at[0]),
                                                                    .count = kCount,
                                                                    .first = (1ull << 35) + 3,
                                                                    .seed = 0xfedcba9876543210,
                                                                    .stream = 0x0123456789abcdef,
                                                                    .below = 1u << 22,
                                                                    .kept = 4.0f / 3};
                                          },
                                          {});
  if constexpr (sizeof(T) >= 4)
    expect_as_on_the_host<SquaresArguments<T>>(
        rank, kernel_name("squares", DTypeOf<T>::value), {drawn<T>(kCount, 1), drawn<double>(8, 2)},
        [](std::span<void* const> at) {
          return SquaresArguments<T>{.values = static_cast<T*>(at[0]),
                                     .count = kCount,
                                     .chunk = 4096,
                                     .sums = static_cast<double*>(at[1])};
        },
        {});
}

template <class T>
void folds(GpuRank& rank, const std::function<Bytes(std::size_t count, unsigned seed)>& draw) {
  constexpr std::size_t kCount = 30'001;
  std::vector<LeafRange> leaves;
  Arrays arrays;
  for (std::uint32_t leaf = 0; leaf < 5; ++leaf) {
    leaves.push_back({leaf, 1});
    arrays.push_back(draw(kCount, leaf));
  }
  arrays.emplace_back(kCount * sizeof(T));
  const auto merges = merge_counts(kernel::fold_steps(leaves, 5), leaves.size());
  for (const Combine op : {Combine::Sum, Combine::Min, Combine::Max, Combine::Product})
    expect_as_on_the_host<FoldArguments>(
        rank, fold_kernel_name(op, DTypeOf<T>::value), arrays,
        [&](std::span<void* const> at) {
          FoldArguments arguments{.out = at.back(), .count = kCount, .num_operands = 5};
          if (op == Combine::Sum && kernel::can_divide(DTypeOf<T>::value)) arguments.by = 3;
          std::copy_n(at.begin(), leaves.size(), arguments.in);
          std::copy(merges.begin(), merges.end(), arguments.merges);
          return arguments;
        },
        {});
}

template <class T>
void rows(GpuRank& rank) {
  for (const std::size_t width : {5, 264, 768}) norms<T>(rank, width);
  losses<T>(rank, 41, 64);
  losses<T>(rank, 41, 41);
  losses<T>(rank, 3000, 3000);
}

TEST(GpuRows, AreThoseOfTheHost) {
  run_gpus(1, [](GpuRank& rank) {
    rows<float>(rank);
    rows<BFloat16>(rank);
    rows<Float16>(rank);
    flat<double>(rank);
    flat<float>(rank);
    flat<BFloat16>(rank);
    flat<Float16>(rank);
  });
}

TEST(GpuRows, FoldsAreThoseOfTheHost) {
  run_gpus(1, [](GpuRank& rank) {
    folds<double>(rank, drawn<double>);
    folds<float>(rank, drawn<float>);
    folds<BFloat16>(rank, drawn<BFloat16>);
    folds<Float16>(rank, drawn<Float16>);
    folds<std::int64_t>(rank, bits<std::int64_t>);
    folds<std::int32_t>(rank, bits<std::int32_t>);
    folds<std::uint8_t>(rank, bits<std::uint8_t>);
  });
}

}  // namespace
}  // namespace trireme::rows_test
