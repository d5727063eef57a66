// Memory of the emulated device: the host cannot touch it, it is poisoned when it is free, there is
// only so much of it, and it is not freed under a stream that uses it.
#include <ATen/DeviceAccelerator.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <vector>

#include "trireme/testing/emulated_device/test_device.h"

namespace trireme::memory_test {
namespace {

using at::Tensor;
using testing::CollectedRaces, testing::on, testing::RaceKind;

class EmulatedMemory : public testing::EmulatedTest {
 protected:
  void SetUp() override {
    EmulatedTest::SetUp();
    GTEST_FLAG_SET(death_test_style, "threadsafe");
  }
};
using EmulatedMemoryDeathTest = EmulatedMemory;

c10::Stream other_stream() {
  return c10::impl::VirtualGuardImpl(c10::DeviceType::PrivateUse1).getStreamFromGlobalPool(on(0));
}

TEST_F(EmulatedMemoryDeathTest, TheHostCannotTouchIt) {
  const Tensor value = at::ones({4}, on(0));
  EXPECT_DEATH(static_cast<volatile float*>(value.data_ptr())[0], "");
  EXPECT_DEATH(static_cast<volatile float*>(value.data_ptr())[0] = 1, "");
}

TEST_F(EmulatedMemoryDeathTest, ARaceEndsTheProcessWithASentence) {
  const auto race = [] {
    const Tensor value = at::ones({4}, on(0));
    const c10::StreamGuard guard(other_stream());
    value.add_(1);
  };
  EXPECT_DEATH(
      race(),
      "aten::add_.Tensor on emulated:0 stream [0-9]+ overwrites memory that may not have been "
      "written yet by aten::fill_.Scalar on emulated:0 stream 0 .* nothing orders the two");
}

TEST_F(EmulatedMemoryDeathTest, AChildOfForkCannotUseIt) {
  GTEST_FLAG_SET(death_test_style, "fast");
  Tensor value = at::ones({4}, on(0));
  const auto child = [&] {
    try {
      value.sum().item<float>();
    } catch (const c10::Error&) {
      value = Tensor();
      std::exit(7);  // with its static objects
    }
    std::_Exit(1);
  };
  EXPECT_EXIT(child(), ::testing::ExitedWithCode(7), "");
}

TEST_F(EmulatedMemoryDeathTest, AProcessMayEndWithWorkInItsStreams) {
  const auto process = [] {
    static std::vector<Tensor> held;
    for (int i = 0; i < 10; ++i) held.push_back(at::ones({1000}, on(i % 2)).add(1));
    at::ones({10}, on(0)).requires_grad_().sum().backward();
    std::exit(5);
  };
  EXPECT_EXIT(process(), ::testing::ExitedWithCode(5), "");
}

TEST_F(EmulatedMemory, NewMemoryIsNan) {
  for (int i = 0; i < 2; ++i) {
    Tensor value = at::empty({1000}, on(0));
    EXPECT_TRUE(value.isnan().all().item<bool>());
    value.zero_();
  }
}

TEST_F(EmulatedMemory, FreeingUnderAStreamIsReported) {
  CollectedRaces races;
  const auto used_by_another_stream = [](bool record, bool wait) {
    Tensor value = at::ones({64}, on(0));
    c10::Event written(c10::DeviceType::PrivateUse1);
    written.record(at::accelerator::getCurrentStream(0));
    const c10::Stream other = other_stream();
    written.block(other);
    const c10::StreamGuard guard(other);
    const Tensor result = value.sum();
    if (record) value.record_stream(other);
    if (wait) other.synchronize();
    value = Tensor();
    EXPECT_TRUE(result.item<float>() == 64 || !record);
  };
  used_by_another_stream(true, false);
  used_by_another_stream(false, true);
  EXPECT_TRUE(races.all().empty());
  used_by_another_stream(false, false);
  ASSERT_FALSE(races.all().empty());
  EXPECT_EQ(races.all()[0].kind, RaceKind::FreeInUse);
  EXPECT_EQ(races.all()[0].earlier, "aten::sum.dim_IntList");
}

TEST_F(EmulatedMemory, UseAfterFreeIsReported) {
  CollectedRaces races;
  Tensor value = at::ones({64}, on(0));
  const Tensor stale = at::from_blob(value.data_ptr(), {64}, value.options());
  value = Tensor();
  const Tensor sum = stale.sum();
  ASSERT_EQ(races.all().size(), 1U);
  EXPECT_EQ(races.all()[0].kind, RaceKind::UseAfterFree);
  at::accelerator::synchronizeDevice(0);
  EXPECT_TRUE(std::isnan(stale.sum().item<float>()));
}

TEST_F(EmulatedMemory, TwoStreamsMayWorkOnPartsOfOneStorage) {
  CollectedRaces races;
  const Tensor whole = at::ones({8, 6}, on(0));
  at::accelerator::synchronizeDevice(0);
  whole.slice(1, 0, 3).mul_(2);  // columns: interleaved in memory
  const c10::Stream other = other_stream();
  {
    const c10::StreamGuard guard(other);
    whole.slice(1, 3, 6).mul_(3);
    EXPECT_TRUE(races.all().empty());
    whole.select(1, 2).mul_(3);
    EXPECT_EQ(races.all().size(), 1U);
  }
  at::accelerator::synchronizeDevice(0);
}

TEST_F(EmulatedMemory, ThereIsOnlySoMuch) {
  at::accelerator::synchronizeDevice(1);
  const std::size_t before = testing::emulated_memory(1).allocated;
  testing::reset_emulated_peak(1);
  constexpr std::int64_t kMib = 1 << 18;  // floats
  std::vector<Tensor> held;
  for (int i = 0; i < 10; ++i) held.push_back(at::ones({5 * kMib}, on(1)));
  EXPECT_EQ(testing::emulated_memory(1).allocated - before, 50U << 20);
  try {
    at::empty({20 * kMib}, on(1));
    FAIL() << "no error";
  } catch (const c10::OutOfMemoryError& error) {
    EXPECT_NE(
        std::string(error.what()).find("emulated:1 is out of memory: 20971520 bytes were asked"),
        std::string::npos)
        << error.what();
  }
  EXPECT_EQ(at::accelerator::getDeviceStats(1).num_ooms, 1);
  held.resize(5);  // freed, but the stream still writes them: the allocation waits for that
  const Tensor fits = at::ones({20 * kMib}, on(1));
  EXPECT_EQ(testing::emulated_memory(1).allocated - before, 45U << 20);
  EXPECT_EQ(testing::emulated_memory(1).peak_allocated - before, 50U << 20);
  const auto [free, total] = at::accelerator::getMemoryInfo(1);
  EXPECT_EQ(total, kMemoryBytes);
  EXPECT_EQ(free, kMemoryBytes - testing::emulated_memory(1).allocated);
}

}  // namespace
}  // namespace trireme::memory_test
