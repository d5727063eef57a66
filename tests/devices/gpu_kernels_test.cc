// Training by the kernels that NVIDIA's GPUs run, compiled for the host: in a device's streams they give
// the bits that they give on the CPU, on any number of ranks and in any order of streams.
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "tests/devices/device_training.h"
#include "tests/devices/emulated_kernels.h"
#include "trireme/testing/emulated_device/emulated_device.h"

namespace trireme::devices {
namespace {

class ByGpuKernels : public ::testing::Test {
 protected:
  void SetUp() override { testing::register_emulated_device({.devices = 4}); }

  const EmulatedKernels kernels_;
};

TEST_F(ByGpuKernels, EveryModelTrainsAsOnTheCpu) {
  for (const Task& task : tasks()) {
    for (const char* precision : {"fp64", "fp32", "bf16", "fp16"}) {
      SCOPED_TRACE(task.name + " " + precision);
      Training training{.options = {.precision = precision, .clip = 0.5, .noise_scale = true}};
      const Outcome cpu = train(task, training);
      training.on_device = true;
      const std::uint64_t before = EmulatedKernels::num_started();
      EXPECT_TRUE(train(task, training) == cpu);
      EXPECT_GT(EmulatedKernels::num_started(), before);
    }
  }
}

TEST_F(ByGpuKernels, EveryShardingTrainsAsOneRank) {
  const Training alone{.options = {.precision = "bf16", .clip = 0.5}, .on_device = true};
  const Outcome one = train(task("gpt"), alone);
  for (const char* sync : {"plain", "zero1", "zero2", "zero3"}) {
    for (const int ranks : {1, 2, 4}) {
      SCOPED_TRACE(std::string(sync) + " on " + std::to_string(ranks));
      Training training = alone;
      training.ranks = ranks;
      training.options.sync = sync;
      testing::reseed(static_cast<std::uint64_t>(ranks));
      EXPECT_TRUE(train(task("gpt"), training) == one);
    }
  }
}

TEST_F(ByGpuKernels, WhatKeepsOrRepeatsActivationsTrainsAlike) {
  const Training plain{.options = {.precision = "bf16", .clip = 0.5}, .on_device = true};
  const Outcome one = train(task("gpt"), plain);
  Training recomputing = plain, offloading = plain, pipeline = plain;
  recomputing.options.recompute = "full";
  offloading.options.offload_activations = "host";
  pipeline.options.pipeline = 2;
  pipeline.ranks = 2;
  for (const Training& training : {recomputing, offloading, pipeline})
    EXPECT_TRUE(train(task("gpt"), training) == one);
}

// Sums are added in another order than LibTorch's operations add them.
TEST_F(ByGpuKernels, ModelsTrainNearlyAsByLibTorchsOperations) {
  const Training training{.options = {.clip = 0.5}};
  for (const char* name : {"gpt", "bert"}) {
    const Outcome by_kernels = train(task(name), training);
    const tensor::GpuKernels::Found none(
        [](Device) -> const tensor::GpuKernels* { return nullptr; });
    const Outcome by_operations = train(task(name), training);
    EXPECT_NE(by_kernels.hash, by_operations.hash);
    for (std::size_t i = 0; i < by_kernels.losses.size(); ++i)
      EXPECT_NEAR(by_kernels.losses[i], by_operations.losses[i], 1e-4) << name;
  }
}

TEST_F(ByGpuKernels, AWaitThatIsLeftOutIsNoticed) {
  Training training{.ranks = 2, .steps = 2, .on_device = true};
  training.options.sync = "zero2";
  const WaitsLeftOut left_out = leave_waits_out(task("gpt"), training, 20);
  EXPECT_GT(left_out.noticed, 0);
}

}  // namespace
}  // namespace trireme::devices
