// Tensors that a device keeps in the host's memory change no bit, and leave the device's memory.
#include <ATen/Functions.h>
#include <c10/core/AutogradState.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <functional>

#include "tests/devices/device_training.h"
#include "trireme/base/error.h"
#include "trireme/memory/activation_store.h"
#include "trireme/memory/offload_folder.h"
#include "trireme/models/models.h"
#include "trireme/optim/optimizer.h"
#include "trireme/tensor/devices/device.h"
#include "trireme/testing/emulated_device/test_device.h"

namespace trireme::devices {
namespace {

// Its blocks save more than stays on the device.
Task wide_gpt() {
  Task wide = task("gpt");
  wide.model = [](const std::string& precision) {
    return models::make_gpt({.layers = 6,
                             .heads = 2,
                             .width = 256,
                             .block = 8,
                             .vocab = 22,
                             .dropout = 0.1,
                             .precision = precision});
  };
  return wide;
}

class Offload : public ::testing::Test {
 protected:
  void SetUp() override { testing::register_emulated_device({.devices = 4}); }
};

Training on_ranks(int ranks, StrategyOptions options) {
  options.clip = 0.5;
  return {.ranks = ranks, .steps = 2, .options = std::move(options), .on_device = true};
}

TEST_F(Offload, ActivationsOnTheHostChangeNoBit) {
  Training alone = on_ranks(1, {});
  alone.on_device = false;
  const Outcome cpu = train(wide_gpt(), alone);
  for (const Training& training :
       {on_ranks(1, {.recompute = "every-2", .offload_activations = "host"}),
        on_ranks(2, {.sync = "zero1", .offload_activations = "host"}),
        on_ranks(3, {.sync = "zero3", .offload_activations = "host"}),
        on_ranks(2, {.pipeline = 2, .offload_activations = "host"}),
        on_ranks(2, {.pipeline = 2, .schedule = "zb-h1", .offload_activations = "host"})}) {
    SCOPED_TRACE(training.options.sync + " " + training.options.recompute);
    testing::reseed(static_cast<std::uint64_t>(training.ranks));
    EXPECT_TRUE(train(wide_gpt(), training) == cpu);
  }
}

// The gradient of eight blocks, each of which saves two tensors of 1 MiB. Backward runs in this
// thread, as a Strategy's does.
at::Tensor gradient_of_blocks(memory::ActivationStore* store) {
  c10::AutogradState::get_tls_state().set_multithreading_enabled(false);
  const auto block = [](const at::Tensor& x) { return x.tanh().tanh(); };
  const at::Tensor input =
      at::linspace(-2, 2, 1 << 18).to(tensor::at_device({DeviceKind::Other, 0})).requires_grad_();
  at::Tensor x = input;
  for (int i = 0; i < 8; ++i) x = store != nullptr ? store->run(block, x) : block(x);
  x.sum().backward();
  return tensor::on_host(input.grad());
}

TEST_F(Offload, ActivationsLeaveTheDevice) {
  testing::reset_emulated_peak(0);
  const at::Tensor wanted = gradient_of_blocks(nullptr);
  const std::size_t kept = testing::emulated_memory(0).peak_allocated;
  const auto store =
      memory::make_activation_store(memory::kOnHost, tensor::at_device({DeviceKind::Other, 0}));
  testing::reset_emulated_peak(0);
  EXPECT_TRUE(at::equal(gradient_of_blocks(store.get()), wanted));
  EXPECT_LT(testing::emulated_memory(0).peak_allocated, kept / 2);
  EXPECT_EQ(store->bytes(), 16 << 20);
}

// A micro-batch that is a view of a data set does not take the data set with it.
TEST_F(Offload, ASmallViewGoesToTheHostAlone) {
  c10::AutogradState::get_tls_state().set_multithreading_enabled(false);
  const at::Device device = tensor::at_device({DeviceKind::Other, 0});
  const at::Tensor all = at::linspace(-2, 2, 1 << 18).view({4096, 64}).to(device);
  const auto gradient = [&](memory::ActivationStore* store, std::int64_t rows) {
    const at::Tensor a = at::ones({rows, 64}, device).requires_grad_(),
                     part = all.narrow(0, 3, rows);
    const at::Tensor b = at::ones({rows, 64}, device).requires_grad_();
    const auto block = [&](const at::Tensor& x) { return a.mul(x).add(b.mul(x.view_as(x))); };
    at::Tensor y = store != nullptr ? store->run(block, part) : block(part);
    if (store != nullptr)
      for (int later = 0; later < 3; ++later)  // the part leaves the device
        y = store->run([](const at::Tensor& x) { return x.mul(1); }, y);
    y.sum().backward();
    return tensor::on_host(at::stack({a.grad(), b.grad()}));
  };
  for (const std::int64_t rows : {256, 2}) {
    const auto store = memory::make_activation_store(memory::kOnHost, device);
    EXPECT_TRUE(at::equal(gradient(store.get(), rows), gradient(nullptr, rows)));
    EXPECT_EQ(store->bytes(), rows == 2 ? 0 : 256 * 64 * 4);
  }
}

// Backward ends before it reads the last block that was fetched, and its graph goes.
TEST_F(Offload, WhatNobodyReadsIsFetchedBeforeItsMemoryGoes) {
  c10::AutogradState::get_tls_state().set_multithreading_enabled(false);
  const at::Device device = tensor::at_device({DeviceKind::Other, 0});
  const auto store = memory::make_activation_store(memory::kOnHost, device);
  at::Tensor x = at::linspace(-2, 2, 1 << 18).to(device).requires_grad_(), middle;
  for (int i = 0; i < 4; ++i) {
    if (i == 2) middle = x;
    x = store->run([](const at::Tensor& in) { return in.tanh(); }, x);
  }
  const testing::CollectedRaces races;
  torch::autograd::grad({x.sum()}, {middle});
  x = middle = at::Tensor();
  EXPECT_TRUE(races.all().empty()) << races.all().front().sentence;
}

// Master weights are there, too, and a rank's part of sharded weights.
TEST_F(Offload, StateAndWeightsOnTheHostChangeNoBit) {
  for (const OptimizerOptions& optimizer :
       {OptimizerOptions(AdamW{}), OptimizerOptions(Lamb{}), OptimizerOptions(Adafactor{})}) {
    Training alone = on_ranks(1, {.precision = "bf16"});
    alone.on_device = false;
    alone.optimizer = optimizer;
    const Outcome cpu = train(task("bert"), alone);
    for (const char* sync : {"plain", "zero1", "zero2", "zero3"}) {
      SCOPED_TRACE(sync);
      Training training =
          on_ranks(3, {.sync = sync, .precision = "bf16", .offload = memory::kOnHost});
      training.optimizer = optimizer;
      testing::reseed(optimizer.index());
      EXPECT_TRUE(train(task("bert"), training) == cpu);
    }
  }
}

TEST_F(Offload, WeightsOfOtherLayoutsOnTheHostChangeNoBit) {
  for (const char* precision : {"fp32", "fp16"}) {
    Training alone = on_ranks(1, {.precision = precision});
    alone.on_device = false;
    const Outcome cpu = train(task("gpt"), alone);
    for (StrategyOptions options : {StrategyOptions{.sync = "hybrid", .shard = 2},
                                    StrategyOptions{.sync = "zero3", .recompute = "full"},
                                    StrategyOptions{.sync = "zero2", .pipeline = 2},
                                    StrategyOptions{.sync = "zero3", .pipeline = 2}}) {
      SCOPED_TRACE(std::string(precision) + " " + options.sync);
      options.precision = precision;
      options.offload = memory::kOnHost;
      testing::reseed(static_cast<std::uint64_t>(options.pipeline));
      EXPECT_TRUE(train(task("gpt"), on_ranks(4, options)) == cpu);
    }
  }
}

// The host adds to them what the device has stored.
TEST_F(Offload, AveragesOnTheHostChangeNoBit) {
  for (const char* precision : {"fp32", "fp16", "bf16"}) {
    Training alone = on_ranks(1, {.precision = precision, .ema = 0.5});
    alone.on_device = false;
    const Outcome cpu = train(task("gpt"), alone);
    EXPECT_NE(cpu.average, cpu.hash);
    for (const char* sync : {"plain", "zero3"}) {
      SCOPED_TRACE(std::string(precision) + " " + sync);
      const Training training = on_ranks(
          4, {.sync = sync, .precision = precision, .offload = memory::kOnHost, .ema = 0.5});
      EXPECT_TRUE(train(task("gpt"), training) == cpu);
    }
  }
}

// Eight weights of 256 KiB after three steps of AdamW. `on_host`: these weights, their copies in bf16
// and the state.
at::Tensor trained_weights(bool on_host) {
  constexpr std::int64_t kSlices = 8, kEach = 1 << 16;
  const auto device = at::TensorOptions(tensor::at_device({DeviceKind::Other, 0}));
  const auto place = on_host ? at::TensorOptions().pinned_memory(true) : device;
  const at::Tensor gradient = at::full({kEach}, 0.5, device);
  const at::Tensor weights = at::empty({kSlices, kEach}, place).fill_(1);
  const at::Tensor copies = at::empty({kSlices, kEach}, place.dtype(at::kBFloat16));
  std::vector<optim::OwnedSlice> slices;
  std::vector<optim::ParameterInfo> infos;
  for (std::int64_t i = 0; i < kSlices; ++i) {
    infos.push_back({"w" + std::to_string(i), {kEach}});
    slices.push_back({.parameter = static_cast<std::uint32_t>(i),
                      .name = infos.back().name,
                      .end = kEach,
                      .weight = weights[i].data_ptr(),
                      .gradient = gradient.data_ptr(),
                      .compute = copies[i].data_ptr(),
                      .device = {DeviceKind::Other, 0},
                      .host_weight = on_host ? weights[i] : at::Tensor(),
                      .host_compute = on_host ? copies[i] : at::Tensor()});
  }
  const auto optimizer = optim::make_optimizer(AdamW{});
  if (on_host) optimizer->keep_state_on_host();
  optimizer->attach(slices, infos);
  for (int step = 0; step < 3; ++step) optimizer->apply(0.1, 1);
  for (const NamedShard& shard : optimizer->state())
    EXPECT_EQ(shard.local.is_cpu(), on_host) << shard.name;
  EXPECT_EQ(optimizer->bytes_on_host(), on_host ? 7U << 20 : 0U);
  optimizer->settle();
  return at::stack({tensor::on_host(weights), tensor::on_host(copies).to(at::kFloat)});
}

// Three slices', of eight, is on the device at a time.
TEST_F(Offload, StateAndWeightsLeaveTheDevice) {
  testing::reset_emulated_peak(0);
  const at::Tensor wanted = trained_weights(false);
  const std::size_t kept = testing::emulated_memory(0).peak_allocated;
  testing::reset_emulated_peak(0);
  EXPECT_TRUE(at::equal(trained_weights(true), wanted));
  EXPECT_LE(testing::emulated_memory(0).peak_allocated, kept - 5 * (896 << 10));
}

// A copy that a device is making when a strategy ends still writes there.
TEST_F(Offload, WeightsOnTheHostLiveAsLongAsTheirOptimizer) {
  constexpr std::int64_t kEach = 1 << 12;
  const at::Tensor gradient =
      at::ones({kEach}, at::TensorOptions(tensor::at_device({DeviceKind::Other, 0})));
  at::Tensor weight = at::zeros({kEach}).pin_memory();
  const auto memory = weight.storage().getWeakStorageImpl();
  const auto optimizer = optim::make_optimizer(AdamW{});
  std::vector<optim::OwnedSlice> slices{{.name = "w",
                                         .end = kEach,
                                         .weight = weight.data_ptr(),
                                         .gradient = gradient.data_ptr(),
                                         .device = {DeviceKind::Other, 0},
                                         .host_weight = weight}};
  optimizer->attach(slices, std::vector<optim::ParameterInfo>{{"w", {kEach}}});
  slices.clear();
  optimizer->apply(0.1, 1);
  weight.reset();
  EXPECT_FALSE(memory.expired());
}

// A rank has half of 4.8 million parameters. The device is without its weights (bf16), masters and
// two moments (fp32).
TEST_F(Offload, ShardsLeaveTheDevice) {
  const auto peak = [](const std::string& offload) {
    Training training = on_ranks(2, {.sync = "zero3", .precision = "bf16", .offload = offload});
    testing::reset_emulated_peak(0);
    train(wide_gpt(), training);
    return testing::emulated_memory(0).peak_allocated;
  };
  EXPECT_LT(peak(memory::kOnHost), peak("") - (24 << 20));
}

void expect_waits_noticed(const std::function<at::Tensor()>& run) {
  const at::Tensor wanted = run();
  testing::reset_emulated_stats();
  run();
  const std::uint64_t waits = testing::emulated_stats().waits;
  std::uint64_t noticed = 0;
  for (std::uint64_t left_out = 1; left_out <= waits; ++left_out) {
    const testing::CollectedRaces races;
    testing::skip_one_wait(left_out);
    const bool same = at::equal(run(), wanted);
    noticed += !races.all().empty();
    EXPECT_TRUE(same || !races.all().empty()) << "wait " << left_out << " of " << waits;
  }
  testing::skip_one_wait(0);
  EXPECT_GT(noticed, waits / 4) << "of " << waits;
}

TEST_F(Offload, AWaitThatIsLeftOutIsNoticed) {
  const auto store =
      memory::make_activation_store(memory::kOnHost, tensor::at_device({DeviceKind::Other, 0}));
  expect_waits_noticed([&] { return gradient_of_blocks(store.get()); });
  expect_waits_noticed([] { return trained_weights(true); });
}

TEST_F(Offload, AWaitForWeightsThatIsLeftOutIsNoticed) {
  Training training = on_ranks(2, {.sync = "zero3", .precision = "bf16"});
  training.options.offload = memory::kOnHost;
  const WaitsLeftOut left_out = leave_waits_out(task("gpt"), training, 12);
  ASSERT_GT(left_out.waits, 50U);
  EXPECT_GT(left_out.noticed, left_out.tried / 4) << "of " << left_out.tried;
}

TEST_F(Offload, AFolderIsRefused) {
  EXPECT_THROW(train(wide_gpt(), on_ranks(1, {.offload = "/tmp"})), ConfigError);
  EXPECT_THROW(train(wide_gpt(), on_ranks(1, {.offload_activations = "/tmp"})), ConfigError);
}

}  // namespace
}  // namespace trireme::devices
