#include "trireme/tensor/device.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <new>
#include <string>

#include "trireme/base/error.h"

namespace trireme::inline v0::tensor {

at::Device at_device(Device device) {
  const auto index = static_cast<at::DeviceIndex>(device.index);
  switch (device.kind) {
    case DeviceKind::Cpu:
      return at::kCPU;
    case DeviceKind::Cuda:
      return {at::kCUDA, index};
    case DeviceKind::Xpu:
      return {at::kXPU, index};
    case DeviceKind::Mps:
      return {at::kMPS, index};
    case DeviceKind::Hpu:
      return {at::kHPU, index};
    case DeviceKind::Other:
      return {at::kPrivateUse1, index};
  }
  return at::kCPU;
}

Device device_of(at::Device device) {
  const int index = device.has_index() ? device.index() : 0;
  switch (device.type()) {
    case at::kCPU:
      return {};
    case at::kCUDA:
      return {DeviceKind::Cuda, index};
    case at::kXPU:
      return {DeviceKind::Xpu, index};
    case at::kMPS:
      return {DeviceKind::Mps, index};
    case at::kHPU:
      return {DeviceKind::Hpu, index};
    case at::kPrivateUse1:
      return {DeviceKind::Other, index};
    default:
      throw ConfigError("no rank trains on a device of type " + device.str(),
                        {.advice = "Choose cpu, cuda, xpu, mps or hpu."});
  }
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

}  // namespace trireme::inline v0::tensor
