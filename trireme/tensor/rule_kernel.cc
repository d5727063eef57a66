#include "trireme/tensor/rule_kernel.h"

#include <c10/core/impl/VirtualGuardImpl.h>

#include <map>
#include <mutex>

#include "trireme/base/error.h"
#include "trireme/comm/nccl/gpu.h"
#include "trireme/kernel/cuda/kernel_image.h"
#include "trireme/tensor/device.h"

namespace trireme::inline v0::tensor {

const RuleKernel* RuleKernel::of(Device device) {
  if (device.kind != DeviceKind::Cuda || kernel::cuda::kernel_image().empty()) return nullptr;
  static std::mutex mutex;
  static std::map<int, std::unique_ptr<RuleKernel>> all;
  const std::lock_guard lock(mutex);
  const auto [at, is_new] = all.try_emplace(device.index);
  if (!is_new) return at->second.get();
  try {
    at->second = std::make_unique<RuleKernel>(
        comm::nccl::Gpu::open(comm::nccl::open_cuda_library(), device.index));
  } catch (const ConfigError&) {  // no driver of NVIDIA's: LibTorch calls AMD's GPUs cuda, too
  }
  return at->second.get();
}

void RuleKernel::give(DType type, std::span<const kernel::cuda::UpdateArguments> calls,
                      void* stream) const {
  for (const kernel::cuda::UpdateArguments& call : calls) gpu_->update(type, call, stream);
}

void* current_stream_handle(Device device) {
  const at::Device on = at_device(device);
  const c10::impl::VirtualGuardImpl guards(on.type());
  return guards.getStreamNativeHandle(guards.getStream(on));
}

}  // namespace trireme::inline v0::tensor
