// Refuses second derivatives, casts as autocast does, and says which implementation computes.
#include "trireme/tensor/functions/functions.h"

#include <ATen/autocast_mode.h>
#include <c10/core/GradMode.h>

#include "trireme/base/error.h"
#include "trireme/tensor/devices/gpu_kernels.h"
#include "trireme/tensor/flat_math.h"
#include "trireme/tensor/functions/implementations.h"
#include "trireme/tensor/functions/second_derivative.h"
#include "trireme/tensor/functions/typed.h"

namespace trireme::inline v0::tensor {

void refuse_second_derivative() {
  if (!c10::GradMode::is_enabled()) return;
  throw ConfigError(
      "create_graph = true asks for second derivatives, and Trireme's functions have only first "
      "ones",
      {.operation = "backward",
       .advice = "Leave create_graph out, or build the blocks that are differentiated twice from "
                 "LibTorch's operations."});
}

bool by_kernels(const at::Tensor& tensor) {
  return implementation_of(tensor) == Implementation::Kernels;
}

bool by_gpu_kernels(const at::Tensor& tensor) {
  return !by_kernels(tensor) && tensor.scalar_type() != at::kDouble &&
         GpuKernels::of(tensor) != nullptr;
}

at::Tensor cast_by_autocast(const at::Tensor& tensor) {
  if (!tensor.defined() || tensor.scalar_type() == at::kDouble ||
      !at::autocast::is_autocast_enabled(at::kCPU))
    return tensor;
  return tensor.to(at::autocast::get_autocast_dtype(at::kCPU));
}

}  // namespace trireme::inline v0::tensor
