// RuleKernel: an optimizer's rule over many slices of a GPU in one kernel of ours, instead of some
// fifteen operations of LibTorch's that each read and write as much (kernel/cuda/update.h). Thread
// safe.
#pragma once

#include <memory>
#include <span>

#include "trireme/base/buffer.h"
#include "trireme/kernel/cuda/update.h"

namespace trireme::inline v0 {
namespace comm::nccl {
class Gpu;
}
namespace tensor {

class RuleKernel {
 public:
  explicit RuleKernel(std::shared_ptr<comm::nccl::Gpu> gpu) : gpu_(std::move(gpu)) {}
  /// Null where LibTorch's operations run the rule: on devices but NVIDIA's, and in a build without
  /// nvcc. ConfigError if the driver lacks a function that is needed: no rank computes otherwise than
  /// the others.
  static const RuleKernel* of(Device device);

  /// Runs after what `stream` (CUDA's) was given. `type`: F32 or F64.
  template <class Rule>
  void run(const Rule& rule, DType type, std::span<const kernel::cuda::UpdateSlice> slices,
           void* stream) const {
    give(type, kernel::cuda::update_arguments(rule, slices), stream);
  }

 private:
  void give(DType type, std::span<const kernel::cuda::UpdateArguments> calls, void* stream) const;
  std::shared_ptr<comm::nccl::Gpu> gpu_;
};

}  // namespace tensor
}  // namespace trireme::inline v0
