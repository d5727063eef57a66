// Streams and events: operations run late, and only events order two streams.
#include <ATen/Context.h>
#include <ATen/DeviceAccelerator.h>
#include <ATen/core/CachingHostAllocator.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <gtest/gtest.h>

#include <functional>

#include "trireme/testing/emulated_device/test_device.h"

namespace trireme::streams_test {
namespace {

using testing::CollectedRaces, testing::on, testing::RaceKind;

class EmulatedStreams : public testing::EmulatedTest {};

c10::Stream pool_stream(int device) {
  return c10::impl::VirtualGuardImpl(c10::DeviceType::PrivateUse1)
      .getStreamFromGlobalPool(on(device));
}

/// Doubles a tensor on a second stream, between two events. Returns the sum on the first.
double doubled_on_another_stream(bool wait_before, bool wait_after) {
  const c10::Stream first = at::accelerator::getCurrentStream(0), second = pool_stream(0);
  at::Tensor value = at::ones({1000}, on(0));
  c10::Event written(c10::DeviceType::PrivateUse1), doubled(c10::DeviceType::PrivateUse1);
  written.record(first);
  {
    const c10::StreamGuard guard(second);
    if (wait_before) written.block(second);
    value.mul_(2);
    doubled.record(second);
  }
  if (wait_after) doubled.block(first);
  const double sum = value.sum().item<double>();
  second.synchronize();
  return sum;
}

TEST_F(EmulatedStreams, NothingRunsBeforeTheHostWaits) {
  const at::Tensor pinned = at::ones({10}).pin_memory();
  const at::Tensor value = pinned.to(on(0), at::kFloat, /*non_blocking=*/true).add(1);
  pinned.fill_(5);  // too early: the copy has not run
  const c10::Stream stream = at::accelerator::getCurrentStream(0);
  c10::Event end(c10::DeviceType::PrivateUse1);
  end.record(stream);
  stream.synchronize();
  EXPECT_TRUE(stream.query());
  EXPECT_TRUE(end.query());
  EXPECT_EQ(value.sum().item<double>(), 60);
}

TEST_F(EmulatedStreams, EventsOrderTwoStreamsUnderEverySeed) {
  for (int seed = 0; seed < 100; ++seed) {
    testing::reseed(seed);
    EXPECT_EQ(doubled_on_another_stream(true, true), 2000) << "seed " << seed;
  }
}

TEST_F(EmulatedStreams, AMissingEventIsReported) {
  CollectedRaces races;
  doubled_on_another_stream(false, true);
  ASSERT_FALSE(races.all().empty());
  EXPECT_EQ(races.all()[0].kind, RaceKind::ReadAfterWrite);
  EXPECT_EQ(races.all()[0].later, "aten::mul.out");
  races.clear();
  doubled_on_another_stream(true, false);
  ASSERT_FALSE(races.all().empty());
  EXPECT_EQ(races.all()[0].kind, RaceKind::ReadAfterWrite);
  EXPECT_EQ(races.all()[0].later, "aten::sum.dim_IntList");
  EXPECT_EQ(races.all()[0].later_stream, "emulated:0 stream 0");
}

TEST_F(EmulatedStreams, ASkippedWaitIsReported) {
  for (const int n : {1, 2}) {
    CollectedRaces races;
    testing::skip_one_wait(n);
    doubled_on_another_stream(true, true);
    EXPECT_FALSE(races.all().empty()) << "wait " << n;
  }
  CollectedRaces races;
  doubled_on_another_stream(true, true);
  EXPECT_TRUE(races.all().empty());
}

TEST_F(EmulatedStreams, PollingGetsOn) {
  const at::Tensor value = at::ones({10}, on(0));
  c10::Event done(c10::DeviceType::PrivateUse1);
  done.record(at::accelerator::getCurrentStream(0));
  while (!done.query()) continue;
  CollectedRaces races;
  const c10::StreamGuard guard(pool_stream(0));
  EXPECT_EQ(value.sum().item<double>(), 10);  // the host has seen that it is done
  EXPECT_TRUE(races.all().empty());
}

// CUDA reads a generator's state, and marks pinned memory as in use, without waiting for the device.
TEST_F(EmulatedStreams, AGeneratorAndPinnedMemoryOrderNoStreams) {
  const auto races_after = [](const std::function<void()>& between) {
    CollectedRaces races;
    const at::Tensor value = at::empty({1000}, on(0)).uniform_().mul_(2);
    between();
    {
      const c10::StreamGuard guard(pool_stream(0));
      value.sum();
    }
    at::accelerator::synchronizeDevice(0);
    return races.all().size();
  };
  EXPECT_EQ(races_after([] { at::globalContext().defaultGenerator(on(0)).get_state(); }), 1U);
  const at::Tensor pinned = at::ones({10}).pin_memory();
  EXPECT_EQ(races_after([&] {
              at::getHostAllocator(c10::DeviceType::PrivateUse1)
                  ->record_event(pinned.data_ptr(), nullptr, at::accelerator::getCurrentStream(0));
            }),
            1U);
  EXPECT_EQ(races_after([] { at::accelerator::synchronizeDevice(0); }), 0U);
}

TEST_F(EmulatedStreams, AnErrorOfAnOperationComesWithTheNextSynchronisation) {
  const at::Tensor index = at::full({1}, 7, at::kLong);
  const at::Tensor rows = at::ones({3, 2}, on(0)).index_select(0, index.to(on(0)));
  const c10::Stream stream = at::accelerator::getCurrentStream(0);
  try {
    stream.synchronize();
    FAIL() << "no error";
  } catch (const c10::Error& error) {
    EXPECT_NE(std::string(error.what()).find("aten::index_select on emulated:0 stream 0 failed"),
              std::string::npos)
        << error.what();
  }
  stream.synchronize();  // once
}

}  // namespace
}  // namespace trireme::streams_test
