#include "trireme/comm/staging/device_copies.h"

#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <memory>
#include <thread>

#include "trireme/tensor/convert.h"
#include "trireme/tensor/devices/device.h"
#include "trireme/testing/emulated_device/test_device.h"

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

// Returns how many races there were.
std::size_t read_behind_a_store(bool wait) {
  testing::register_emulated_device({.devices = 4});
  const testing::CollectedRaces races;
  const auto copies = tensor::make_device_copies();
  const Device device{DeviceKind::Other, 0};
  const at::Tensor there = at::zeros({64}, tensor::at_device(device));
  (void)there.cpu();
  const comm::StagedBuffer one{tensor::to_buffer(there), copies->host_block(64 * sizeof(float))};
  std::fill_n(reinterpret_cast<float*>(one.host->bytes().data()), 64, 3.0f);
  const auto mark = copies->store(device, {&one, 1});
  testing::skip_one_wait(wait ? 0 : 1);
  mark->wait_on(tensor::current_stream(device));
  const float sum = (there + 1).cpu().sum().item<float>();
  testing::skip_one_wait(0);
  EXPECT_TRUE(!wait || sum == 256) << sum;
  return races.all().size();
}

TEST(DeviceCopies, AStreamThatWaitsForAMarkFindsWhatWasStored) {
  EXPECT_EQ(read_behind_a_store(true), 0u);
  EXPECT_GT(read_behind_a_store(false), 0u);
}

TEST(DeviceCopies, AStreamDoesNotWaitForItself) {
  testing::register_emulated_device({.devices = 4});
  const auto copies = tensor::make_device_copies();
  const Device device{DeviceKind::Other, 0};
  const Buffer buffer = tensor::to_buffer(at::zeros({4}, tensor::at_device(device)));
  const auto mark = copies->copy(buffer, buffer);
  const auto waits = testing::emulated_stats().waits;
  mark->wait_on(tensor::current_stream(device));
  EXPECT_EQ(testing::emulated_stats().waits, waits);
}

}  // namespace
}  // namespace trireme::devices
