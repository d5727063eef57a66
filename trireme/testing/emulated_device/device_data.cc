#include "trireme/testing/emulated_device/device_data.h"

#include <torch/csrc/autograd/variable.h>
#include <torch/nn/module.h>

#include <mutex>
#include <utility>

#include "trireme/testing/emulated_device/current_stream.h"
#include "trireme/testing/emulated_device/runtime.h"
#include "trireme/testing/emulated_device/storages.h"

namespace trireme::inline v0::testing {

void set_data_across_devices(const at::Tensor& tensor, const at::Tensor& data) {
  if (auto* const autograd = torch::autograd::impl::get_autograd_meta(tensor)) {
    const std::lock_guard lock(autograd->mutex_);
    autograd->grad_accumulator_.reset();  // it remembers the device
  }
  tensor.unsafeGetTensorImpl()->shallow_copy_from(data.detach().getIntrusivePtr());
}

void move_module(torch::nn::Module& module, c10::Device device) {
  for (const bool parameters : {true, false})
    for (const at::Tensor& tensor : parameters ? module.parameters() : module.buffers())
      if (tensor.defined()) set_data_across_devices(tensor, tensor.detach().to(device));
}

void launch_on_stream(const c10::Stream& stream, StreamWork work) {
  CpuAliases aliases;
  Launch launch{std::move(work.name), {}, {}};
  const auto prepared = [&](const std::vector<at::Tensor>& tensors, bool write) {
    std::vector<at::Tensor> made;
    for (const at::Tensor& tensor : tensors) {
      add_accesses(launch.accesses, tensor, write);
      made.push_back(is_emulated(tensor) ? aliases.of(tensor) : tensor);
    }
    return made;
  };
  std::vector<at::Tensor> reads = prepared(work.reads, false), writes = prepared(work.writes, true);
  launch.run = [run = std::move(work.run), reads = std::move(reads), writes = std::move(writes)] {
    run(reads, writes);
  };
  Runtime::get().launch(from_c10(stream), std::move(launch));
}

}  // namespace trireme::inline v0::testing
