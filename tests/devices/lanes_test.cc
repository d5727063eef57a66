// Micro-batches side by side in the threads of one rank give the bits of one after the other.
#include <ATen/DeviceAccelerator.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/devices/device_training.h"
#include "trireme/memory/offload_folder.h"
#include "trireme/testing/emulated_device/emulated_device.h"

namespace trireme::devices {
namespace {

void expect_as_one_lane(const std::string& name, StrategyOptions options) {
  testing::register_emulated_device({.devices = 4});
  options.clip = 0.5;
  const Outcome one = train(task(name), {.options = options, .on_device = true});
  options.lanes = 3;
  for (std::uint64_t seed = 0; seed < 3; ++seed) {
    testing::reseed(seed);
    EXPECT_TRUE(train(task(name), {.options = options, .on_device = true}) == one) << name;
  }
}

TEST(LanesOnDevice, ChangeNoBit) {
  expect_as_one_lane("gpt", {});
  expect_as_one_lane("gpt", {.recompute = "full"});
  expect_as_one_lane("gpt", {.offload_activations = memory::kOnHost});
  expect_as_one_lane("resnet", {});
}

// An event that ends while another device is the thread's takes memory there.
TEST(LanesOnDevice, StayOnIt) {
  testing::register_emulated_device({.devices = 4});
  at::accelerator::setDeviceIndex(1);  // as that of a rank's thread
  testing::reset_emulated_stats();
  train(task("gpt"), {.options = {.offload_activations = memory::kOnHost, .lanes = 2},
                      .on_device = true,
                      .first_device = 1});
  EXPECT_EQ(testing::emulated_stats().events_ended_elsewhere, 0);
  at::accelerator::setDeviceIndex(0);
}

// The balance loss of experts takes the loss scale from the thread in which backward runs.
TEST(LanesOnDevice, ScaleEveryLoss) { expect_as_one_lane("experts", {.precision = "fp16"}); }

}  // namespace
}  // namespace trireme::devices
