// The GPU's kernels of kernel/cuda/ on the emulated device.
#pragma once

#include "trireme/tensor/devices/gpu_kernels.h"

namespace trireme::devices {

/// While it lives, tensors of the emulated device and, with LibTorchOnCpu, of the CPU are computed as
/// those of NVIDIA's GPUs are: by LibTorch's operations and by the kernels of kernel/cuda/, compiled
/// for the host. On the emulated device they run in its streams, and their memory is checked.
class EmulatedKernels {
 public:
  EmulatedKernels();
  /// How many ran on emulated devices since.
  static std::uint64_t num_started();

 private:
  const tensor::GpuKernels::Found found_;
};

}  // namespace trireme::devices
