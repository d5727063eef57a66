// A training loop with three streams: batches come from pinned memory on one, the step runs on a
// second, gradients go to the host and back on a third. Every wait in it is needed, and the emulated
// device says so for each that is left out.
#include <ATen/ATen.h>
#include <ATen/DeviceAccelerator.h>
#include <ATen/Parallel.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <gtest/gtest.h>

#include <vector>

#include "trireme/testing/emulated_device/device_data.h"
#include "trireme/testing/emulated_device/test_device.h"

namespace trireme::pipeline_test {
namespace {

using at::Tensor;
using testing::CollectedRaces, testing::on, testing::same_bits;

constexpr int kSteps = 4;
constexpr c10::DeviceType kDevice = c10::DeviceType::PrivateUse1;

class EmulatedPipeline : public testing::EmulatedTest {
 protected:
  void SetUp() override {
    EmulatedTest::SetUp();
    at::set_num_threads(1);
  }
};

Tensor first_weight() { return at::arange(64, at::kFloat).view({8, 8}).sin(); }
Tensor batch(int step) { return at::arange(32, at::kFloat).add(step).view({4, 8}).cos(); }

/// The gradient of sum((x w)^2), doubled by the "network", is taken off the weights.
Tensor plain_loop() {
  Tensor weight = first_weight();
  for (int step = 0; step < kSteps; ++step) {
    const Tensor x = batch(step);
    const Tensor gradient = at::mm(x.t(), at::mm(x, weight).mul(2));
    weight.sub_(gradient.mul(2), 1e-2);
  }
  return weight;
}

/// On `to`, after all that is on `from` now.
void wait_for(const c10::Stream& from, const c10::Stream& to) {
  c10::Event event(kDevice);
  event.record(from);
  event.block(to);
}

Tensor streamed_loop() {
  const c10::impl::VirtualGuardImpl guard(kDevice);
  const c10::Stream compute = guard.getStreamFromGlobalPool(on(0));
  const c10::Stream loading = guard.getStreamFromGlobalPool(on(0));
  const c10::Stream network = guard.getStreamFromGlobalPool(on(0));
  const c10::StreamGuard on_compute(compute);
  const Tensor weight = first_weight().to(on(0));
  std::vector<Tensor> pinned;
  for (int step = 0; step < kSteps; ++step) pinned.push_back(batch(step).pin_memory());
  const Tensor reduced = at::empty({8, 8}, on(0));
  for (int step = 0; step < kSteps; ++step) {
    Tensor x;
    {
      const c10::StreamGuard on_loading(loading);
      x = pinned[step].to(on(0), at::kFloat, /*non_blocking=*/true);
    }
    wait_for(loading, compute);
    const Tensor gradient = at::mm(x.t(), at::mm(x, weight).mul(2));
    x.record_stream(compute);
    wait_for(compute, network);
    testing::launch_on_stream(
        network, {"all_reduce", {gradient}, {reduced}, [](auto& in, auto& out) {
                    at::mul_out(const_cast<Tensor&>(out[0]), in[0], in[0].new_full({}, 2));
                  }});
    gradient.record_stream(network);
    wait_for(network, compute);
    weight.sub_(reduced, 1e-2);
  }
  Tensor result = weight.cpu();
  at::accelerator::synchronizeDevice(0);
  return result;
}

TEST_F(EmulatedPipeline, ThreeStreamsGiveTheWeightsOfAPlainLoop) {
  const Tensor wanted = plain_loop();
  for (int seed = 0; seed < 100; ++seed) {
    testing::reseed(seed);
    EXPECT_TRUE(same_bits(streamed_loop(), wanted)) << "seed " << seed;
  }
}

TEST_F(EmulatedPipeline, EachWaitThatIsLeftOutIsReported) {
  testing::reset_emulated_stats();
  streamed_loop();
  const auto num_waits = testing::emulated_stats().waits;
  EXPECT_EQ(num_waits, 3U * kSteps);
  for (std::uint64_t n = 1; n <= num_waits; ++n) {
    CollectedRaces races;
    testing::skip_one_wait(n);
    streamed_loop();
    EXPECT_FALSE(races.all().empty()) << "wait " << n;
  }
  EXPECT_EQ(testing::emulated_stats().waits, num_waits * num_waits);
}

// Without the detector, orders of the streams differ enough that a missing wait changes results.
TEST_F(EmulatedPipeline, AMissingWaitAlsoChangesResultsUnderSomeSeed) {
  const Tensor wanted = plain_loop();
  CollectedRaces races;
  int num_wrong = 0;
  for (int seed = 0; seed < 20; ++seed) {
    testing::reseed(seed);
    testing::skip_one_wait(3);  // the first step does not wait for the network
    num_wrong += !same_bits(streamed_loop(), wanted);
  }
  EXPECT_GT(num_wrong, 0);
}

TEST_F(EmulatedPipeline, ASeedGivesOneOrder) {
  const c10::impl::VirtualGuardImpl guard(kDevice);
  for (const int device : {0, 1})
    at::accelerator::synchronizeDevice(device);  // earlier tests' work
  std::vector<c10::Stream> streams;
  for (int i = 0; i < 6; ++i) streams.push_back(guard.getNewStream(on(i % 2)));
  const auto order = [&](int seed) {
    testing::reseed(seed);
    std::vector<int> ran;
    for (int i = 0; i < 18; ++i)
      testing::launch_on_stream(streams[i % 6],
                                {"note", {}, {}, [&ran, i](auto&, auto&) { ran.push_back(i); }});
    for (const c10::Stream& stream : streams) stream.synchronize();
    return ran;
  };
  const std::vector<int> first = order(1);
  EXPECT_EQ(first.size(), 18U);
  EXPECT_EQ(order(1), first);
  EXPECT_NE(order(2), first);
}

}  // namespace
}  // namespace trireme::pipeline_test
