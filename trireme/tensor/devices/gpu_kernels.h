// GpuKernels: starts Trireme's own kernels on an NVIDIA GPU (kernel/cuda/). Each makes one pass
// over memory where LibTorch's operations make several. Thread safe.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string_view>

#include "trireme/base/buffer.h"
#include "trireme/kernel/cuda/warp.h"

namespace trireme::inline v0::tensor {

class GpuKernels {
 public:
  virtual ~GpuKernels() = default;
  /// Null where LibTorch's operations compute: on other devices than NVIDIA's, and in a build
  /// without nvcc. ConfigError if the driver lacks a function that is needed: all ranks must use
  /// the same kernels.
  static const GpuKernels* of(Device device);
  static const GpuKernels* of(const at::Tensor& tensor);

  /// While it lives, of() returns what `find` does. For tests. Whole process.
  class Found {
   public:
    using Find = const GpuKernels* (*)(Device);
    explicit Found(Find find);
    ~Found();
    Found(const Found&) = delete;

   private:
    Find outer_;
  };

  /// Starts kernel::cuda::kernel_name(what, type) in LibTorch's current stream of the device, with
  /// `blocks` blocks of 256 threads (at most 4,096; 0: none): a kernel works with any number.
  template <class Arguments>
  void run(std::string_view what, DType type, const Arguments& arguments,
           std::uint64_t blocks) const {
    start(what, type, &arguments, blocks);
  }
  /// Blocks for one thread per element.
  static constexpr std::uint64_t blocks_for(std::uint64_t elements) {
    constexpr std::uint64_t kThreads = kernel::cuda::kWarp * kernel::cuda::kWarpsOfBlock;
    return (elements + kThreads - 1) / kThreads;
  }
  /// run() for a kernel whose warps each take one of `parts` at a time.
  template <class Arguments>
  void run_warps(std::string_view what, DType type, const Arguments& arguments,
                 std::uint64_t parts) const {
    constexpr std::uint64_t kParts = kernel::cuda::kWarpsOfBlock;
    start(what, type, &arguments, (parts + kParts - 1) / kParts);
  }

 protected:
  virtual void start(std::string_view what, DType type, const void* arguments,
                     std::uint64_t blocks) const = 0;
};

}  // namespace trireme::inline v0::tensor
