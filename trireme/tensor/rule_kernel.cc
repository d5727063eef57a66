#include "trireme/tensor/rule_kernel.h"

#include <ATen/Context.h>

#include <map>
#include <mutex>

#include "trireme/comm/nccl/gpu.h"
#include "trireme/kernel/cuda/kernel_image.h"
#include "trireme/tensor/device.h"

namespace trireme::inline v0::tensor {

const RuleKernel* RuleKernel::of(Device device) {
  if (device.kind != DeviceKind::Cuda || kernel::cuda::kernel_image().empty()) return nullptr;
  if (at::globalContext().hasROCM()) return nullptr;  // AMD's GPUs, which LibTorch calls cuda, too
  static std::mutex mutex;
  // Never destroyed: the driver may have gone by then.
  static auto& all = *new std::map<int, std::unique_ptr<RuleKernel>>();
  const std::lock_guard lock(mutex);
  std::unique_ptr<RuleKernel>& kernel = all[device.index];
  if (kernel == nullptr)
    kernel = std::make_unique<RuleKernel>(
        comm::nccl::Gpu::open(comm::nccl::open_cuda_library(), device.index));
  return kernel.get();
}

void RuleKernel::give(DType type, std::span<const kernel::cuda::UpdateArguments> calls,
                      void* stream) const {
  for (const kernel::cuda::UpdateArguments& call : calls) gpu_->update(type, call, stream);
}

}  // namespace trireme::inline v0::tensor
