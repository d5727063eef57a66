#include "trireme/testing/emulated_device/fallback.h"

#include <c10/core/DeviceGuard.h>

#include <memory>
#include <utility>

#include "trireme/testing/emulated_device/arguments.h"
#include "trireme/testing/emulated_device/current_stream.h"
#include "trireme/testing/emulated_device/operator_call.h"
#include "trireme/testing/emulated_device/shapes.h"
#include "trireme/testing/emulated_device/views.h"

namespace trireme::inline v0::testing {
namespace {

using torch::jit::Stack;

/// A result that does not exist yet, and where it goes.
struct NewResult {
  std::size_t index = 0;       // of the return value
  std::vector<at::Tensor> to;  // aliases on the executor; some undefined
};

/// Gives `out` arguments the sizes that the operator would give them.
void resize_outs(const OperatorCall& call, const Prediction& predicted) {
  for (std::size_t i = 0; i < predicted.outs.size(); ++i) {
    if (predicted.outs[i].empty()) continue;
    std::size_t next = 0;
    visit_tensors(call.arguments()[i], [&](const at::Tensor& out) {
      const PredictedTensor& will_be = predicted.outs[i].at(next++);
      if (out.sizes() == at::IntArrayRef(will_be.sizes)) return;
      out.resize_(will_be.sizes);
      out.unsafeGetTensorImpl()->set_sizes_and_strides(will_be.sizes, will_be.strides);
    });
  }
}

bool has_outs(const OperatorCall& call) {
  for (const c10::Argument& argument : call.schema().arguments())
    if (argument.is_out()) return true;
  return false;
}

bool has_new_results(const OperatorCall& call) {
  for (std::size_t i = 0; i < call.schema().returns().size(); ++i)
    if (call.aliased_argument(i) < 0) return true;
  return false;
}

/// Allocates the results of the call, without their values.
Stack make_results(const OperatorCall& call, const Prediction& predicted, CpuAliases& aliases,
                   std::vector<Access>& accesses, std::vector<NewResult>& fresh) {
  Stack results;
  for (std::size_t i = 0; i < call.schema().returns().size(); ++i) {
    const int argument = call.aliased_argument(i);
    if (argument >= 0) {
      results.push_back(call.arguments()[static_cast<std::size_t>(argument)]);
      continue;
    }
    NewResult& one = fresh.emplace_back();
    one.index = i;
    c10::List<at::Tensor> made;
    for (const PredictedTensor& shape : predicted.returns.at(i).tensors) {
      at::Tensor tensor;
      if (shape.defined) {
        tensor = call.allocate(shape.dtype, shape.sizes, shape.strides);
        add_accesses(accesses, tensor, true);
      }
      one.to.push_back(shape.defined ? aliases.of(tensor) : at::Tensor());
      made.push_back(tensor);
    }
    if (predicted.returns[i].is_list) {
      results.emplace_back(std::move(made));
    } else {
      results.emplace_back(made.get(0));
    }
  }
  return results;
}

void store(const at::Tensor& from, const at::Tensor& to) {
  if (!to.defined()) return;
  TORCH_CHECK(from.sizes() == to.sizes() && from.scalar_type() == to.scalar_type(),
              "the result is ", from.sizes(), " of ", from.scalar_type(), " where ", to.sizes(),
              " of ", to.scalar_type(), " was expected");
  to.copy_(from);
}

/// On the executor: the CPU's kernel, and its results to where they belong.
void run_cpu_kernel(const c10::OperatorHandle& op, Stack arguments,
                    const std::vector<NewResult>& fresh) {
  op.callBoxed(&arguments);
  for (const NewResult& one : fresh) {
    const c10::IValue& value = arguments.at(one.index);
    if (value.isTensor()) {
      store(value.toTensor(), one.to.at(0));
    } else {
      const std::vector<at::Tensor> tensors = value.toTensorVector();
      TORCH_CHECK(tensors.size() == one.to.size(), "the result has another number of tensors");
      for (std::size_t i = 0; i < tensors.size(); ++i) store(tensors[i], one.to[i]);
    }
  }
}

Stack run_later(const OperatorCall& call) {
  Prediction predicted;
  if (has_new_results(call) || has_outs(call))
    predicted = predict_shapes(call.op(), call.arguments());
  resize_outs(call, predicted);
  CpuAliases aliases;
  std::vector<Access> accesses = call.accesses();
  std::vector<NewResult> fresh;
  Stack results = make_results(call, predicted, aliases, accesses, fresh);
  call.launch(std::move(accesses),
              [op = call.op(), arguments = call.cpu_arguments(aliases), fresh = std::move(fresh)] {
                run_cpu_kernel(op, arguments, fresh);
              });
  return results;
}

/// Runs the operator now, because the host needs its result or its size.
Stack run_now(const OperatorCall& call) {
  CpuAliases aliases;
  const auto values = std::make_shared<Stack>();
  call.launch(call.accesses(), [op = call.op(), arguments = call.cpu_arguments(aliases), values] {
    *values = arguments;
    op.callBoxed(values.get());
  });
  Runtime::get().synchronize_stream(current_stream(call.device()));
  Stack results;
  for (std::size_t i = 0; i < call.schema().returns().size(); ++i) {
    const int argument = call.aliased_argument(i);
    if (argument >= 0) {
      results.push_back(call.arguments()[static_cast<std::size_t>(argument)]);
      continue;
    }
    results.push_back(map_tensors(values->at(i), [&](const at::Tensor& value) {
      const at::Tensor made = call.allocate(value.scalar_type(), value.sizes(), value.strides());
      std::vector<Access> accesses;
      add_accesses(accesses, made, true);
      call.launch(std::move(accesses), [to = aliases.of(made), value] { to.copy_(value); });
      return made;
    }));
  }
  return results;
}

}  // namespace

void run_on_device(const c10::OperatorHandle& op, Stack* stack) {
  const KernelScope scope;
  Stack arguments = take_arguments(*stack, op.schema().arguments().size());
  Stack results;
  if (is_view(op.schema())) {
    results = run_view(op, arguments);
  } else {
    const OperatorCall call(op, std::move(arguments));
    const c10::DeviceGuard guard(emulated_device(call.device()));
    results = call.needs_result() ? run_now(call) : run_later(call);
  }
  for (c10::IValue& value : results) stack->push_back(std::move(value));
}

}  // namespace trireme::inline v0::testing
