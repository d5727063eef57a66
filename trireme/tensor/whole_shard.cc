#include "trireme/tensor/whole_shard.h"

#include <c10/core/GradMode.h>

#include "trireme/base/error.h"
#include "trireme/tensor/convert.h"

namespace trireme::inline v0::tensor {

void copy_elements(at::Tensor target, at::Tensor from) {
  for (std::int64_t dim = 0; dim < target.dim(); ++dim) {
    if (target.stride(dim) != 0 || target.size(dim) < 2) continue;
    target = target.narrow(dim, 0, 1);
    from = from.narrow(dim, 0, 1);
  }
  target.copy_(from);
}

NamedShard whole_shard(const std::string& name, const at::Tensor& tensor) {
  const at::Tensor own = tensor.detach();
  NamedShard shard{.name = name,
                   .dtype = dtype_of(own),
                   .shape = own.sizes().vec(),
                   .begin = 0,
                   .end = own.numel(),
                   .local = own.contiguous()};
  if (own.is_contiguous()) return shard;
  shard.load = [name, own](const at::Tensor& saved) {
    if (saved.sizes() != own.sizes())
      throw CheckpointError(
          "the saved tensor \"" + name + "\" has " + std::to_string(saved.size(0)) +
              " rows, and this run's has " + std::to_string(own.size(0)),
          {.operation = "resume", .advice = "Resume with the model of the checkpoint's run."});
    const c10::AutoGradMode no_grad(false);
    copy_elements(own, saved);
  };
  return shard;
}

}  // namespace trireme::inline v0::tensor
