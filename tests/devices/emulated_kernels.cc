#include "tests/devices/emulated_kernels.h"

#include <atomic>
#include <cstddef>
#include <string>
#include <vector>

#include "trireme/base/check.h"
#include "trireme/kernel/cuda/kernel_image.h"
#include "trireme/testing/emulated_device/emulated_device.h"
#include "trireme/testing/gpu/kernels_on_host.h"

namespace trireme::devices {
namespace {

std::atomic<std::uint64_t> started{0};

const testing::KernelOnHost& kernel_named(const std::string& name) {
  const testing::KernelOnHost* const kernel = testing::kernel_on_host(name);
  TRIREME_CHECK(kernel != nullptr);
  return *kernel;
}

struct KernelsOfCpu final : tensor::GpuKernels {
  void start(std::string_view what, DType type, const void* arguments,
             std::uint64_t blocks) const override {
    if (blocks > 0) kernel_named(kernel::cuda::kernel_name(what, type)).run(arguments);
  }
};

class KernelsOfDevice final : public tensor::GpuKernels {
 public:
  explicit KernelsOfDevice(int device) : device_(device) {}

 private:
  void start(std::string_view what, DType type, const void* arguments,
             std::uint64_t blocks) const override {
    if (blocks == 0) return;
    ++started;
    const std::string name = kernel::cuda::kernel_name(what, type);
    const testing::KernelOnHost& kernel = kernel_named(name);
    const auto* const given = static_cast<const std::byte*>(arguments);
    std::vector<std::byte> moved(given, given + kernel.argument_bytes);
    std::vector<testing::KernelMemory> memory;
    kernel.each_array(moved.data(), [&](void*& at, std::size_t bytes, bool writes) {
      memory.push_back({.begin = at, .bytes = bytes, .write = writes});
      at = testing::address_for_kernels(at);
      TRIREME_CHECK(at != nullptr);
    });
    testing::launch_kernel(device_, name, memory,
                           [&kernel, moved = std::move(moved)] { kernel.run(moved.data()); });
  }

  const int device_;
};

const tensor::GpuKernels* find(Device device) {
  static const KernelsOfCpu cpu;
  static const KernelsOfDevice devices[] = {KernelsOfDevice(0), KernelsOfDevice(1),
                                            KernelsOfDevice(2), KernelsOfDevice(3)};
  if (device.kind == DeviceKind::Cpu) return &cpu;
  TRIREME_CHECK(static_cast<std::size_t>(device.index) < std::size(devices));
  return &devices[device.index];
}

}  // namespace

EmulatedKernels::EmulatedKernels() : found_(find) { started = 0; }
std::uint64_t EmulatedKernels::num_started() { return started; }

}  // namespace trireme::devices
