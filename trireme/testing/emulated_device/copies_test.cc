// Copies between the host and devices, and between devices.
#include <ATen/DeviceAccelerator.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <gtest/gtest.h>

#include <cmath>

#include "trireme/testing/emulated_device/test_device.h"

namespace trireme::copies_test {
namespace {

using at::Tensor;
using testing::CollectedRaces, testing::on, testing::same_bits;

class EmulatedCopies : public testing::EmulatedTest {};

c10::Stream other_stream(int device) {
  return c10::impl::VirtualGuardImpl(c10::DeviceType::PrivateUse1)
      .getStreamFromGlobalPool(on(device));
}

TEST_F(EmulatedCopies, ThereAndBack) {
  const Tensor host = at::arange(24, at::kFloat).view({4, 6});
  for (const at::ScalarType type : {at::kDouble, at::kFloat, at::kBFloat16, at::kLong}) {
    const Tensor value = host.to(type);
    EXPECT_TRUE(same_bits(value.to(on(0)), value));
    EXPECT_TRUE(same_bits(value.to(on(0)).to(on(1)).cpu(), value));
    EXPECT_TRUE(same_bits(host.to(on(0), type), value));  // converts on the way
    EXPECT_TRUE(same_bits(value.t().to(on(0)), value.t()));
  }
  const testing::EmulatedStats stats = testing::emulated_stats();
  EXPECT_EQ(stats.copies_to_device, 16U);
  EXPECT_EQ(stats.copies_on_devices, 4U);
  EXPECT_EQ(stats.bytes_on_devices, 24U * (8 + 4 + 2 + 8));
}

TEST_F(EmulatedCopies, ACopyToPinnedMemoryIsLate) {
  const Tensor value = at::ones({8}, on(0));
  const Tensor pinned = at::empty({8}, at::TensorOptions().pinned_memory(true));
  EXPECT_TRUE(pinned.is_pinned());
  EXPECT_FALSE(at::empty({8}).is_pinned());
  pinned.copy_(value, /*non_blocking=*/true);
  EXPECT_TRUE(std::isnan(pinned[0].item<float>()));  // read too early
  at::accelerator::getCurrentStream(0).synchronize();
  EXPECT_EQ(pinned.sum().item<float>(), 8);
  // to() pins its result.
  const Tensor late = value.to(at::kCPU, at::kFloat, /*non_blocking=*/true);
  EXPECT_TRUE(late.is_pinned());
  EXPECT_TRUE(std::isnan(late[0].item<float>()));
  c10::Event done(c10::DeviceType::PrivateUse1);
  done.record(at::accelerator::getCurrentStream(0));
  done.synchronize();
  EXPECT_EQ(late.sum().item<float>(), 8);
}

TEST_F(EmulatedCopies, ACopyFromMemoryThatIsNotPinnedTakesItAtOnce) {
  Tensor host = at::ones({8});
  const Tensor value = host.to(on(0), at::kFloat, /*non_blocking=*/true);
  host.zero_();
  EXPECT_EQ(value.sum().item<float>(), 8);
}

TEST_F(EmulatedCopies, PinnedMemoryOutlivesItsCopies) {
  Tensor pinned = at::full({1000}, 3).to(at::kFloat).pin_memory();
  const Tensor value = pinned.to(on(0), at::kFloat, /*non_blocking=*/true);
  pinned = Tensor();
  const Tensor again = at::full({1000}, 7).to(at::kFloat).pin_memory();
  EXPECT_EQ(value.sum().item<float>(), 3000);
}

TEST_F(EmulatedCopies, TwoCopiesToPinnedMemoryOnTwoStreamsRace) {
  CollectedRaces races;
  const Tensor value = at::ones({8}, on(0));
  at::accelerator::synchronizeDevice(0);
  const Tensor pinned = at::empty({8}, at::TensorOptions().pinned_memory(true));
  pinned.copy_(value, /*non_blocking=*/true);
  {
    const c10::StreamGuard guard(other_stream(0));
    pinned.copy_(value, /*non_blocking=*/true);
  }
  EXPECT_EQ(races.all().size(), 1U);
  at::accelerator::synchronizeDevice(0);
}

TEST_F(EmulatedCopies, ACopyBetweenDevicesOrdersTheirCurrentStreams) {
  CollectedRaces races;
  for (int seed = 0; seed < 20; ++seed) {
    testing::reseed(seed);
    Tensor here = at::ones({100}, on(0)), there = at::ones({100}, on(1)).mul_(5);
    there.add_(here.mul_(2).to(on(1)));
    here.copy_(there).add_(1);
    there.zero_();
    EXPECT_EQ(here.sum().item<float>(), 800);
  }
  EXPECT_TRUE(races.all().empty());
  // Another stream of the target is not ordered.
  const Tensor here = at::ones({100}, on(0)), there = here.to(on(1));
  const c10::StreamGuard guard(other_stream(1));
  there.sum();
  EXPECT_EQ(races.all().size(), 1U);
  at::accelerator::synchronizeDevice(1);
}

TEST_F(EmulatedCopies, StorageGrowsInOrder) {
  Tensor value = at::ones({8}, on(0)).mul_(2);
  value.resize_({1000});
  value.slice(0, 8).fill_(1);
  EXPECT_EQ(value.sum().item<float>(), 16 + 992);
}

}  // namespace
}  // namespace trireme::copies_test
