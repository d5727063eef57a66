#include "trireme/tensor/devices/device.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <new>
#include <string>
#include <utility>

#include "trireme/base/error.h"

namespace trireme::inline v0::tensor {

namespace {

constexpr std::pair<DeviceKind, at::DeviceType> kKinds[] = {
    {DeviceKind::Cpu, at::kCPU}, {DeviceKind::Cuda, at::kCUDA},
    {DeviceKind::Xpu, at::kXPU}, {DeviceKind::Mps, at::kMPS},
    {DeviceKind::Hpu, at::kHPU}, {DeviceKind::Other, at::kPrivateUse1}};

}  // namespace

at::Device at_device(Device device) {
  for (const auto& [kind, type] : kKinds)
    if (kind == device.kind && type != at::kCPU)
      return {type, static_cast<at::DeviceIndex>(device.index)};
  return at::kCPU;
}

Device device_of(at::Device device) {
  if (device.is_cpu()) return {};
  for (const auto& [kind, type] : kKinds)
    if (type == device.type()) return {kind, device.has_index() ? device.index() : 0};
  throw ConfigError("no rank trains on a device of type " + device.str(),
                    {.advice = "Choose cpu, cuda, xpu, mps or hpu."});
}

std::shared_ptr<std::byte> flat_memory(std::size_t bytes, Device device) {
  const std::size_t size = std::max<std::size_t>(bytes, 64);
  if (device.kind == DeviceKind::Cpu)
    return {static_cast<std::byte*>(::operator new (size, std::align_val_t{64})),
            [](std::byte* data) { ::operator delete (data, std::align_val_t{64}); }};
  const auto tensor = std::make_shared<at::Tensor>(at::empty(
      {static_cast<std::int64_t>(size)}, at::TensorOptions(at_device(device)).dtype(at::kByte)));
  return {tensor, static_cast<std::byte*>(tensor->data_ptr())};
}

at::Tensor on_host(const at::Tensor& tensor) {
  return tensor.defined() && !tensor.is_cpu() ? tensor.to(at::kCPU) : tensor;
}

std::vector<double> numbers_on_host(std::span<const at::Tensor> tensors) {
  if (tensors.empty()) return {};
  const at::Device device = tensors.front().device();
  const bool together = std::all_of(tensors.begin(), tensors.end(), [&](const at::Tensor& tensor) {
    return tensor.device() == device;
  });
  std::vector<at::Tensor> flat;
  for (const at::Tensor& tensor : tensors)
    flat.push_back((together ? tensor : on_host(tensor)).reshape({-1}));
  const at::Tensor all = on_host(at::cat(flat)).contiguous();
  const auto* const first = static_cast<const double*>(all.const_data_ptr());
  return {first, first + all.numel()};
}

std::vector<double> numbers_of(std::span<const at::Tensor> scalars) {
  std::vector<at::Tensor> defined;
  for (const at::Tensor& one : scalars)
    if (one.defined()) defined.push_back(one.detach().to(at::kDouble));
  const std::vector<double> found = numbers_on_host(defined);
  std::vector<double> numbers;
  auto next = found.begin();
  for (const at::Tensor& one : scalars) numbers.push_back(one.defined() ? *next++ : 0);
  return numbers;
}

at::Tensor on_device(const at::Tensor& tensor, at::Device device) {
  if (device.is_cpu()) return tensor;
  if (!tensor.is_cpu()) return tensor.to(device, /*non_blocking=*/true);
  const at::Tensor pinned = at::empty(tensor.sizes(), tensor.options().pinned_memory(true));
  return pinned.copy_(tensor).to(device, /*non_blocking=*/true);
}

Stream current_stream(Device device) {
  const at::Device on = at_device(device);
  const c10::impl::VirtualGuardImpl guards(on.type());
  return {guards.getStreamNativeHandle(guards.getStream(on))};
}

void wait_for(const Work& work, at::Device device) {
  device.is_cpu() ? work.wait() : work.wait_on(current_stream(device_of(device)));
}

}  // namespace trireme::inline v0::tensor
