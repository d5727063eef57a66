#include "trireme/tensor/random.h"

#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include "trireme/tensor/devices/gpu_kernels_test.h"
#include "trireme/tensor/flat_math.h"

namespace trireme::tensor::random_test {
namespace {

TEST(DropoutMask, IsTheSameHoweverItIsComputed) {
  const StreamKey key{.seed = 0xfedcba9876543210, .step = 7, .sample = 1LL << 40, .layer = 3};
  for (const auto type : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf}) {
    for (const double p : {0.0, 0.1, 0.5, 1.0 / 3, 1.0}) {
      // From any element of a block on, and where the counter has more than 32 bits.
      for (const std::int64_t first : {0LL, 1LL, 6LL, (1LL << 35) + 3}) {
        const at::Tensor kernels = at::empty({5, 61}, type), operators = at::empty({5, 61}, type),
                         gpu_kernels = at::empty({5, 61}, type);
        fill_dropout_mask(kernels, key, p, first);
        {
          const LibTorchOnCpu as_devices;
          fill_dropout_mask(operators, key, p, first);
        }
        {
          const KernelsOnCpu as_gpus;
          fill_dropout_mask(gpu_kernels, key, p, first);
        }
        EXPECT_TRUE(at::equal(kernels, operators)) << type << " p " << p << " from " << first;
        EXPECT_TRUE(at::equal(kernels, gpu_kernels)) << type << " p " << p << " from " << first;
      }
    }
  }
}

// A word that is exactly p is kept, since the numbers drawn are in [0, 1).
TEST(DropoutMask, KeepsAllAtZeroAndHalfOfManyAtOneHalf) {
  const at::Tensor mask = at::empty({100000});
  fill_dropout_mask(mask, {.seed = 3}, 0);
  EXPECT_TRUE(at::equal(mask, at::ones_like(mask)));
  fill_dropout_mask(mask, {.seed = 3}, 0.5);
  EXPECT_NEAR(mask.mean().item<double>(), 1, 0.02);
}

}  // namespace
}  // namespace trireme::tensor::random_test
