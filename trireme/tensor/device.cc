#include "trireme/tensor/device.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/stack.h>

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

std::vector<double> numbers_of(std::span<const at::Tensor> scalars) {
  std::vector<at::Tensor> doubles;
  for (const at::Tensor& one : scalars)
    doubles.push_back(one.defined() ? one.detach().to(at::kDouble).view(at::IntArrayRef{})
                                    : at::Tensor());
  std::vector<at::Tensor> distant;
  for (const at::Tensor& one : doubles)
    if (one.defined() && !one.is_cpu()) distant.push_back(one);
  const at::Tensor here = distant.empty() ? at::Tensor() : on_host(at::stack(distant));
  std::vector<double> numbers;
  std::int64_t next = 0;
  for (const at::Tensor& one : doubles)
    numbers.push_back(!one.defined() ? 0 : (one.is_cpu() ? one : here[next++]).item<double>());
  return numbers;
}

}  // namespace trireme::inline v0::tensor
