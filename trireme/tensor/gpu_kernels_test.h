// The GPU's kernels compiled for the host, as what tensors of the CPU are computed by.
#pragma once

#include "trireme/kernel/cuda/kernel_image.h"
#include "trireme/tensor/flat_math.h"
#include "trireme/tensor/gpu_kernels.h"
#include "trireme/testing/gpu/kernels_on_host.h"

namespace trireme::inline v0::tensor {

class KernelsOnCpu final : public GpuKernels {
 public:
  KernelsOnCpu() : functions_(this) {}

 private:
  void start(std::string_view what, DType type, const void* arguments,
             std::uint64_t blocks) const override {
    if (blocks > 0) testing::kernel_on_host(kernel::cuda::kernel_name(what, type))->run(arguments);
  }

  const LibTorchOnCpu functions_;
};

}  // namespace trireme::inline v0::tensor
