#include "trireme/testing/emulated_device/views.h"

#include "trireme/testing/emulated_device/arguments.h"
#include "trireme/testing/emulated_device/storages.h"

namespace trireme::inline v0::testing {

bool is_view(const c10::FunctionSchema& schema) {
  for (const c10::Argument& result : schema.returns())
    if (result.alias_info() && !result.alias_info()->isWrite()) return true;
  return false;
}

torch::jit::Stack run_view(const c10::OperatorHandle& op, const torch::jit::Stack& arguments) {
  CpuAliases aliases(CpuAliases::Mapping::Shown);
  at::Tensor base;
  torch::jit::Stack results;
  for (const c10::IValue& value : arguments) {
    results.push_back(map_tensors(value, [&](const at::Tensor& tensor) {
      if (!base.defined() && is_emulated(tensor)) base = tensor;
      return is_emulated(tensor) ? aliases.of(tensor) : tensor;
    }));
  }
  TORCH_CHECK(base.defined(), op.schema().name(), " has no argument on the emulated device");
  op.callBoxed(&results);
  for (c10::IValue& value : results)
    value = map_tensors(value, [&](const at::Tensor& shape) { return view_like(base, shape); });
  return results;
}

}  // namespace trireme::inline v0::testing
