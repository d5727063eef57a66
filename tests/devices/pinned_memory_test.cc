#include "trireme/tensor/devices/pinned_memory.h"

#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

#include "trireme/base/pinned_blocks.h"
#include "trireme/memory/activation_store.h"
#include "trireme/memory/offload_folder.h"
#include "trireme/optim/optimizer.h"
#include "trireme/tensor/devices/device.h"
#include "trireme/testing/emulated_device/emulated_device.h"

namespace trireme::devices {
namespace {

class PinnedMemory : public ::testing::Test {
 protected:
  void SetUp() override {
    testing::register_emulated_device({.devices = 4});
    before_ = testing::emulated_pinned_bytes();
  }
  std::size_t taken() const { return testing::emulated_pinned_bytes() - before_; }

 private:
  std::size_t before_ = 0;
};

const at::Device kDevice = tensor::at_device({DeviceKind::Other, 0});

// The sizes of a GPT's parameters: an embedding, and the same four matrices in every block.
TEST_F(PinnedMemory, OfAnOptimizersStateIsLittleMoreThanTheState) {
  std::vector<std::int64_t> sizes{5025};
  for (int block = 0; block < 12; ++block) sizes.insert(sizes.end(), {1728, 576, 2304, 2305, 1});
  std::int64_t most = 0, all = 0;
  for (std::int64_t& size : sizes) {
    size *= 65;
    most = std::max(most, size);
    all += size;
  }
  const at::Tensor weight = at::ones({most}, kDevice), gradient = at::ones({most}, kDevice);
  std::vector<optim::OwnedSlice> slices;
  std::vector<optim::ParameterInfo> infos;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    infos.push_back({"w" + std::to_string(i), {sizes[i]}});
    slices.push_back({.parameter = static_cast<std::uint32_t>(i),
                      .name = infos.back().name,
                      .end = sizes[i],
                      .weight = weight.data_ptr(),
                      .gradient = gradient.data_ptr(),
                      .device = {DeviceKind::Other, 0}});
  }
  const auto optimizer = optim::make_optimizer(AdamW{});
  optimizer->keep_state_on_host();
  optimizer->attach(slices, infos);
  EXPECT_EQ(optimizer->bytes_on_host(), taken());
  const auto state = static_cast<double>(2 * all) * sizeof(float);
  EXPECT_LE(static_cast<double>(taken()), 1.125 * state);
}

// As the weights of a transformer's blocks: each is a little more than a power of two.
TEST_F(PinnedMemory, TensorsOfOneSizeLoseLessTheMoreThereAre) {
  constexpr std::int64_t kBytes = 65 << 10;
  tensor::PinnedMemory memory;
  std::vector<at::Tensor> tensors;
  for (const auto& [count, most] : {std::pair{12, 2.0}, {24, 1.35}, {96, 1.25}}) {
    while (tensors.size() < static_cast<std::size_t>(count))
      tensors.push_back(memory.take(kBytes, at::kByte));
    EXPECT_EQ(taken(), pinned_blocks(tensors.size(), kBytes)) << "what a plan counts";
    EXPECT_LE(static_cast<double>(taken()), most * kBytes * count) << count;
  }
}

TEST_F(PinnedMemory, TensorsOfABlockAreApart) {
  tensor::PinnedMemory memory;
  std::vector<at::Tensor> tensors;
  for (int i = 0; i < 100; ++i)
    tensors.push_back(memory.take(37 * i, i % 2 == 0 ? at::kFloat : at::kBFloat16).fill_(i));
  for (int i = 0; i < 100; ++i) {
    EXPECT_TRUE(tensors[i].eq(i).all().item<bool>()) << i;
    EXPECT_TRUE(i == 0 || tensors[i].is_pinned()) << i;
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(tensors[i].data_ptr()) % 64, 0U) << i;
  }
}

TEST_F(PinnedMemory, OfActivationsIsWhatTheStoreCounts) {
  const auto store = memory::make_activation_store(memory::kOnHost, kDevice);
  const at::Tensor input = at::ones({9 * (1 << 15)}, kDevice).requires_grad_();
  at::Tensor x = input;
  for (int i = 0; i < 3; ++i)
    x = store->run([](const at::Tensor& value) { return value.tanh(); }, x);
  const auto bytes = static_cast<double>(3 * input.nbytes());
  EXPECT_EQ(static_cast<std::size_t>(store->bytes()), taken());
  EXPECT_LE(static_cast<double>(taken()), 1.125 * bytes);
}

}  // namespace
}  // namespace trireme::devices
