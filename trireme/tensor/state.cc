#include "trireme/tensor/state.h"

#include <c10/core/GradMode.h>
#include <c10/util/StringUtil.h>

#include <nlohmann/json.hpp>

#include "trireme/base/error.h"
#include "trireme/tensor/convert.h"

namespace trireme::inline v0 {
namespace {

std::string optimizer_of(const std::string& metadata) {
  const auto json = nlohmann::json::parse(metadata, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("optimizer") || !json["optimizer"].is_string()) return {};
  return json["optimizer"].get<std::string>();
}

}  // namespace

void require_same_optimizer(const std::string& saved, const std::string& own) {
  const std::string before = optimizer_of(saved), now = optimizer_of(own);
  if (before.empty() || now.empty() || before == now) return;
  throw CheckpointError(
      "the checkpoint holds the state of the optimizer " + before + ", and this run has " + now,
      {.operation = "checkpoint.resume",
       .advice = "Go on with " + before + ", or start anew from its weights."});
}

namespace tensor {

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
          "the saved tensor \"" + name + "\" has the shape " + c10::str(saved.sizes()) +
              ", and this run's has " + c10::str(own.sizes()),
          {.operation = "resume", .advice = "Resume with the model of the checkpoint's run."});
    const c10::AutoGradMode no_grad(false);
    copy_elements(own, saved);
  };
  return shard;
}

}  // namespace tensor

}  // namespace trireme::inline v0
