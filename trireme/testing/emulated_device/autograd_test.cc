// Training on the emulated device: the same weights as on the CPU, under every order of streams.
#include <ATen/ATen.h>
#include <ATen/DeviceAccelerator.h>
#include <ATen/Parallel.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/optim/adamw.h>

#include <thread>
#include <vector>

#include "trireme/testing/emulated_device/device_data.h"
#include "trireme/testing/emulated_device/test_device.h"

namespace trireme::autograd_test {
namespace {

using at::Tensor;
using testing::CollectedRaces, testing::on, testing::same_bits;
using Tensors = std::vector<Tensor>;

class EmulatedTraining : public testing::EmulatedTest {
 protected:
  void SetUp() override {
    EmulatedTest::SetUp();
    at::set_num_threads(1);
    at::manual_seed(3);
  }
};

/// A transformer block with its head: x -> x + attention(norm(x)) -> + mlp(norm(x)) -> logits.
struct Block : torch::nn::Module {
  Block() {
    qkv = register_module("qkv", torch::nn::Linear(16, 48));
    out = register_module("out", torch::nn::Linear(16, 16));
    first = register_module("first", torch::nn::LayerNorm(torch::nn::LayerNormOptions({16})));
    second = register_module("second", torch::nn::LayerNorm(torch::nn::LayerNormOptions({16})));
    up = register_module("up", torch::nn::Linear(16, 32));
    down = register_module("down", torch::nn::Linear(32, 16));
    embedding = register_parameter("embedding", at::randn({11, 16}));
  }
  Tensor loss(const Tensor& tokens_BT, const Tensor& targets_BT) {
    Tensor x_BTC = at::embedding(embedding, tokens_BT);
    const auto B = x_BTC.size(0), T = x_BTC.size(1);
    const Tensors parts =
        qkv(first(x_BTC)).view({B, T, 3, 2, 8}).permute({2, 0, 3, 1, 4}).unbind(0);
    const Tensor attended =
        at::scaled_dot_product_attention(parts[0], parts[1], parts[2], {}, 0, true);
    x_BTC = x_BTC + out(attended.transpose(1, 2).reshape({B, T, 16}));
    x_BTC = x_BTC + down(at::gelu(up(second(x_BTC))));
    return at::cross_entropy_loss(at::linear(x_BTC, embedding).flatten(0, 1), targets_BT.flatten());
  }
  torch::nn::Linear qkv = nullptr, out = nullptr, up = nullptr, down = nullptr;
  torch::nn::LayerNorm first = nullptr, second = nullptr;
  Tensor embedding;
};

/// Losses and weights after a few steps of AdamW.
Tensors trained(c10::Device device) {
  at::manual_seed(3);
  const auto block = std::make_shared<Block>();
  testing::move_module(*block, device);
  torch::optim::AdamW optimizer(block->parameters(), torch::optim::AdamWOptions(1e-2));
  Tensors made;
  for (int step = 0; step < 3; ++step) {
    const Tensor tokens = at::arange(2 * 7, at::kLong).mul(step + 3).remainder(11).view({2, 7});
    optimizer.zero_grad();
    const Tensor loss = block->loss(tokens.to(device), tokens.roll(-1, 1).to(device));
    loss.backward();
    optimizer.step();
    made.push_back(loss.detach().clone());
  }
  for (const Tensor& parameter : block->parameters()) made.push_back(parameter.detach());
  return made;
}

TEST_F(EmulatedTraining, ATransformerBlockGetsTheWeightsOfTheCpu) {
  const Tensors wanted = trained(at::kCPU);
  for (int seed = 0; seed < 5; ++seed) {
    testing::reseed(seed);
    const Tensors found = trained(on(seed % 2));
    for (std::size_t i = 0; i < wanted.size(); ++i)
      EXPECT_TRUE(same_bits(wanted[i], found[i])) << i;
  }
}

TEST_F(EmulatedTraining, TheEngineRunsBackwardOnTheStreamsOfForward) {
  const auto gradients = [](c10::Device device, bool streams) {
    at::manual_seed(3);
    const Tensor a = at::randn({8, 8}).to(device).requires_grad_();
    const Tensor b = at::randn({8, 8}).to(device).requires_grad_();
    Tensor product, other;
    if (streams) {
      const c10::Stream first = at::accelerator::getCurrentStream(device.index());
      const c10::Stream second =
          c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device);
      c10::Event ready(device.type()), done(device.type());
      ready.record(first);
      ready.block(second);
      product = at::mm(a, b);
      {
        const c10::StreamGuard guard(second);
        other = at::mm(b, a).tanh();
        done.record(second);
      }
      done.block(first);
    } else {
      product = at::mm(a, b);
      other = at::mm(b, a).tanh();
    }
    (product + other).sum().backward();
    return Tensors{a.grad(), b.grad()};
  };
  const Tensors wanted = gradients(at::kCPU, false);
  for (int seed = 0; seed < 20; ++seed) {
    testing::reseed(seed);
    const Tensors found = gradients(on(0), true);
    for (std::size_t i = 0; i < 2; ++i) EXPECT_TRUE(same_bits(wanted[i], found[i])) << i;
    at::accelerator::synchronizeDevice(0);
  }
}

TEST_F(EmulatedTraining, HostThreadsHaveDevicesAndStreamsOfTheirOwn) {
  const Tensors wanted = trained(at::kCPU);
  std::vector<Tensors> found(2);
  std::vector<std::thread> threads;
  for (int i = 0; i < 2; ++i) {
    threads.emplace_back([i, &found] {
      at::accelerator::setDeviceIndex(static_cast<c10::DeviceIndex>(i));
      const c10::impl::VirtualGuardImpl guard(c10::DeviceType::PrivateUse1);
      at::accelerator::setCurrentStream(guard.getStreamFromGlobalPool(on(i)));
      Tensor value = at::ones({100, 100}, at::TensorOptions(c10::DeviceType::PrivateUse1));
      for (int k = 0; k < 50; ++k) value = at::mm(value, value).div_(100);
      found[i] = {value.cpu()};
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(same_bits(found[i][0], at::ones({100, 100})));
}

}  // namespace
}  // namespace trireme::autograd_test
