#include "trireme/comm/staging/device_copies.h"

#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <thread>

#include "trireme/tensor/devices/device.h"
#include "trireme/testing/emulated_device/emulated_device.h"

namespace trireme::devices {
namespace {

// The thread that moves a communicator's data has GPU 0 as its current device, whatever the rank's is.
TEST(DeviceCopies, MarksThatAnotherThreadDropsEndOnTheirDevice) {
  testing::register_emulated_device({.devices = 4});
  const auto copies = tensor::make_device_copies();
  const Device device{DeviceKind::Other, 1};
  testing::reset_emulated_stats();
  std::array marks{copies->fetch(device, {}), copies->store(device, {})};
  const std::uint64_t before = testing::emulated_stats().events_ended_elsewhere;
  std::thread([&] {
    for (auto& mark : marks) mark.reset();
    copies->store(device, {});
  }).join();
  EXPECT_EQ(testing::emulated_stats().events_ended_elsewhere, before);
}

}  // namespace
}  // namespace trireme::devices
