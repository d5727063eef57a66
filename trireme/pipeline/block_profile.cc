#include "trireme/pipeline/block_profile.h"

#include <ATen/DeviceAccelerator.h>
#include <ATen/ops/ones_like.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <limits>

#include "trireme/placement/stage.h"
#include "trireme/tensor/devices/device.h"

namespace trireme::inline v0::parallel {
namespace {

constexpr int kRuns = 3;  // the first also pays for allocations and kernel set-up

// A block's inputs, detached from the graph of the blocks before it.
Values detached(const Values& values) {
  Values own;
  for (const auto& [name, value] : values)
    for (const at::Tensor& tensor : value) {
      at::Tensor copy = tensor.detach();
      own[name].push_back(copy.is_floating_point() ? copy.requires_grad_() : copy);
    }
  return own;
}

void run_back(const Values& values) {
  std::vector<at::Tensor> roots, gradients;
  for (const auto& [name, value] : values) {
    for (const at::Tensor& tensor : value) {
      if (!tensor.requires_grad() || tensor.is_leaf()) continue;
      roots.push_back(tensor);
      gradients.push_back(at::ones_like(tensor));
    }
  }
  if (!roots.empty()) torch::autograd::backward(roots, gradients);
}

void move_to(const Stage& stage, at::Device device) {
  for (const Stage::Member& member : stage.members()) {
    for (const models::NamedTensor& own : member.block->parameters())
      own.tensor.set_data(own.tensor.detach().to(device));
    for (const models::NamedTensor& own : member.block->buffers())
      own.tensor.set_data(own.tensor.detach().to(device));
  }
}

// Waits until the device has computed all that was started, and returns the time.
TimePoint computed(const Waiter& waiter, Device device) {
  if (device.kind != DeviceKind::Cpu)
    at::accelerator::synchronizeDevice(static_cast<at::DeviceIndex>(device.index));
  return waiter.now();
}

std::int64_t bytes_of(const models::Value& value) {
  std::int64_t bytes = 0;
  for (const at::Tensor& tensor : value) bytes += static_cast<std::int64_t>(tensor.nbytes());
  return bytes;
}

}  // namespace

std::vector<plan::BlockCost> profile_blocks(const models::Blocks& model, const MicroBatch& given,
                                            std::uint64_t seed, const Waiter& waiter,
                                            Device device) {
  const c10::AutoGradMode with_grad(true);
  const MicroBatch micro = on_device(given, device);
  std::vector<plan::BlockCost> costs;
  Values values;
  for (std::size_t i = 0; i < model.specs().size(); ++i) {
    Stage block(model, seed, {}, {i, i + 1});
    move_to(block, tensor::at_device(device));
    block.train(true);
    const std::string& name = model.specs()[i].writes;
    double best = std::numeric_limits<double>::infinity();
    Values after;
    for (int run = 0; run < kRuns; ++run) {
      const Values inputs = detached(values);
      const TimePoint begin = computed(waiter, device);
      after = block.forward(inputs, micro, 0);
      run_back(after);
      best = std::min(best, to_seconds(computed(waiter, device) - begin));
    }
    std::int64_t weights = 0;
    for (const models::NamedTensor& own : block.members().front().block->parameters())
      weights += static_cast<std::int64_t>(own.tensor.nbytes());
    values.clear();
    for (const auto& [kept, value] : after)
      for (const at::Tensor& tensor : value) values[kept].push_back(tensor.detach());
    costs.push_back({.name = model.specs()[i].name,
                     .seconds = best,
                     .weight_bytes = weights,
                     .output_bytes = bytes_of(values[name])});
  }
  return costs;
}

}  // namespace trireme::inline v0::parallel
