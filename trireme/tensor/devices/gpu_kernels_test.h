// The GPU's kernels compiled for the host, as what tensors of the CPU are computed by.
#pragma once

#include "trireme/kernel/cuda/kernel_image.h"
#include "trireme/tensor/devices/gpu_kernels.h"
#include "trireme/tensor/flat_math.h"
#include "trireme/testing/gpu/kernels_on_host.h"

namespace trireme::inline v0::tensor {

/// Runs them at once. `arguments` is as in GpuKernels::start().
inline void run_on_host(std::string_view what, DType type, const void* arguments) {
  testing::kernel_on_host(kernel::cuda::kernel_name(what, type))->run(arguments);
}

/// While it lives, tensors of the CPU are computed as those of NVIDIA's GPUs are.
class KernelsOnCpu {
  struct Kernels final : GpuKernels {
    void start(std::string_view what, DType type, const void* arguments,
               std::uint64_t blocks) const override {
      if (blocks > 0) run_on_host(what, type, arguments);
    }
  };
  static const GpuKernels* find(Device) {
    static const Kernels kernels;
    return &kernels;
  }

  const LibTorchOnCpu functions_;
  const GpuKernels::Found found_{find};
};

}  // namespace trireme::inline v0::tensor
