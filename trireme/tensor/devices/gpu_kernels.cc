#include "trireme/tensor/devices/gpu_kernels.h"

#include <ATen/Context.h>

#include <atomic>
#include <map>
#include <memory>
#include <mutex>

#include "trireme/comm/nccl/gpu.h"
#include "trireme/kernel/cuda/kernel_image.h"
#include "trireme/tensor/devices/device.h"

namespace trireme::inline v0::tensor {
namespace {

class DriversKernels final : public GpuKernels {
 public:
  explicit DriversKernels(Device device)
      : device_(device),
        gpu_(std::make_shared<comm::nccl::Gpu>(comm::nccl::open_cuda_library(), device.index)) {}

 private:
  void start(std::string_view what, DType type, const void* arguments,
             std::uint64_t blocks) const override {
    gpu_->launch(kernel::cuda::kernel_name(what, type), arguments, blocks,
                 current_stream(device_).handle);
  }

  const Device device_;
  const std::shared_ptr<comm::nccl::Gpu> gpu_;
};

std::atomic<GpuKernels::Found::Find> found{nullptr};

}  // namespace

GpuKernels::Found::Found(Find find) : outer_(found.exchange(find)) {}
GpuKernels::Found::~Found() { found = outer_; }

const GpuKernels* GpuKernels::of(Device device) {
  if (const Found::Find find = found) return find(device);
  if (device.kind != DeviceKind::Cuda || kernel::cuda::kernel_image().empty()) return nullptr;
  if (at::globalContext().hasROCM()) return nullptr;  // AMD's GPUs, which LibTorch calls cuda, too
  static std::mutex mutex;
  // Never destroyed: at the process's end the driver may be unloaded first.
  static auto& all = *new std::map<int, std::unique_ptr<const GpuKernels>>();
  const std::lock_guard lock(mutex);
  std::unique_ptr<const GpuKernels>& kernels = all[device.index];
  if (kernels == nullptr) kernels = std::make_unique<DriversKernels>(device);
  return kernels.get();
}

const GpuKernels* GpuKernels::of(const at::Tensor& tensor) {
  return of(device_of(tensor.device()));
}

}  // namespace trireme::inline v0::tensor
