// Two things that LibTorch's API does not do for a backend such as the emulated one (LibTorch
// 2.13): move a module to it, and give a stream work that is no LibTorch operation.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/Stream.h>

#include <functional>
#include <string>
#include <vector>

namespace torch::nn {
class Module;
}

namespace trireme::inline v0::testing {

/// tensor.set_data(data) across devices, which LibTorch refuses for such a backend
/// (TensorImpl::has_compatible_shallow_copy_type).
void set_data_across_devices(const at::Tensor& tensor, const at::Tensor& data);

/// module.to(device), which fails for the same reason.
void move_module(torch::nn::Module& module, c10::Device device);

/// Work of a test for a stream, such as a collective.
struct StreamWork {
  std::string name;
  std::vector<at::Tensor> reads, writes;  // on the stream's device, or pinned
  /// Gets CPU tensors over the same memory: those of `reads`, then those of `writes`. Runs late, in
  /// a thread of the device, and must not use the device itself. The tensors may be gone by then;
  /// call record_stream() on them as for any other work.
  std::function<void(const std::vector<at::Tensor>& reads, const std::vector<at::Tensor>& writes)>
      run;
};
void launch_on_stream(const c10::Stream& stream, StreamWork work);

}  // namespace trireme::inline v0::testing
