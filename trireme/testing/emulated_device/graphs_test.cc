// Graphs on the emulated device: what is recorded does not run, and each replay runs it anew.
#include <ATen/DeviceAccelerator.h>
#include <ATen/Functions.h>
#include <c10/core/StreamGuard.h>
#include <gtest/gtest.h>

#include <cmath>

#include "trireme/testing/emulated_device/test_device.h"

#if __has_include(<ATen/core/GraphImplInterface.h>)
#include <ATen/core/GraphImplInterface.h>

namespace trireme::graphs_test {
namespace {

using testing::on;

class EmulatedGraphs : public testing::EmulatedTest {
 protected:
  void SetUp() override {
    EmulatedTest::SetUp();
    guard_.emplace(
        c10::impl::VirtualGuardImpl(c10::DeviceType::PrivateUse1).getStreamFromGlobalPool(on(0)));
    graph_ = at::create_graph_impl(c10::DeviceType::PrivateUse1);
  }
  template <class Body>
  void record(Body body) {
    graph_->capture_begin();
    body();
    graph_->capture_end();
  }
  std::optional<c10::StreamGuard> guard_;
  std::unique_ptr<at::GraphImplInterface> graph_;
};

TEST_F(EmulatedGraphs, EachReplayReadsItsInputAnew) {
  const at::Tensor input = at::ones({3}, on(0));
  at::Tensor output;
  record([&] { output = (input + 1) * 2; });
  for (const double value : {1.0, 5.0}) {
    input.fill_(value);
    graph_->replay();
    EXPECT_EQ(output.sum().item<double>(), 3 * (value + 1) * 2);
  }
}

TEST_F(EmulatedGraphs, WhatIsRecordedDoesNotRun) {
  const at::Tensor count = at::zeros({1}, on(0));
  record([&] { count.add_(1); });
  EXPECT_EQ(count.item<float>(), 0);
  graph_->replay();
  graph_->replay();
  EXPECT_EQ(count.item<float>(), 2);
}

TEST_F(EmulatedGraphs, ACopyToPinnedMemoryIsLateInEachReplay) {
  const at::Tensor count = at::zeros({1}, on(0));
  const at::Tensor pinned = at::empty({1}, at::TensorOptions().pinned_memory(true));
  record([&] {
    count.add_(1);
    pinned.copy_(count, /*non_blocking=*/true);
  });
  for (const float replays : {1.0F, 2.0F}) {
    graph_->replay();
    EXPECT_TRUE(std::isnan(pinned.item<float>()));  // read too early
    guard_->current_stream().synchronize();
    EXPECT_EQ(pinned.item<float>(), replays);
  }
}

TEST_F(EmulatedGraphs, MemoryStaysUntilTheGraphGoes) {
  const at::Tensor input = at::ones({1000}, on(0));
  const std::size_t before = testing::emulated_memory(0).allocated;
  at::Tensor output;
  record([&] { output = (input + 1).sum(); });
  EXPECT_GE(testing::emulated_memory(0).allocated, before + 4000);  // what was freed in it
  graph_->replay();
  EXPECT_EQ(output.item<float>(), 2000);
  graph_.reset();
  EXPECT_LT(testing::emulated_memory(0).allocated, before + 4000);
  EXPECT_EQ(output.item<float>(), 2000);  // lives on
}

TEST_F(EmulatedGraphs, WaitsCannotBeRecorded) {
  const at::Tensor value = at::ones({1}, on(0));
  EXPECT_THROW(record([&] { value.item<float>(); }), c10::Error);
  graph_->capture_end();
  EXPECT_EQ(value.item<float>(), 1);
}

TEST_F(EmulatedGraphs, AReplayThatNothingOrdersIsARace) {
  testing::CollectedRaces races;
  const at::Tensor input = at::ones({3}, on(0));
  at::Tensor output;
  record([&] { output = input + 1; });
  graph_->replay();
  EXPECT_TRUE(races.all().empty());
  {
    const c10::StreamGuard other(
        c10::impl::VirtualGuardImpl(c10::DeviceType::PrivateUse1).getStreamFromGlobalPool(on(0)));
    at::Tensor copy = output * 1;
    graph_->replay();
  }
  EXPECT_FALSE(races.all().empty());
  graph_.reset();
}

}  // namespace
}  // namespace trireme::graphs_test
#endif
