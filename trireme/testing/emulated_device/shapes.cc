#include "trireme/testing/emulated_device/shapes.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/EmptyTensor.h>

#include <exception>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>

#include "trireme/testing/emulated_device/arguments.h"

namespace trireme::inline v0::testing {
namespace {

using torch::jit::Stack;

/// A text that differs between calls whose results may differ in shape. Null: there is none.
class CallKey {
 public:
  explicit CallKey(const c10::OperatorHandle& op, const Stack& arguments) {
    text_ = op.operator_name().name + '.' + op.operator_name().overload_name;
    for (const c10::IValue& value : arguments) add(value);
  }
  const std::string* text() const { return complete_ ? &text_ : nullptr; }

 private:
  void add_bytes(const void* data, std::size_t bytes) {
    text_.append(static_cast<const char*>(data), bytes);
  }
  template <class T>
  void add_number(T value) {
    add_bytes(&value, sizeof value);
  }
  void add(const at::Tensor& tensor) {
    text_ += tensor.defined() ? 'T' : 'U';
    if (!tensor.defined()) return;
    add_number(tensor.scalar_type());
    add_number(tensor.unsafeGetTensorImpl()->is_wrapped_number());
    add_number(tensor.dim());
    add_bytes(tensor.sizes().data(), tensor.sizes().size() * sizeof(std::int64_t));
    add_bytes(tensor.strides().data(), tensor.strides().size() * sizeof(std::int64_t));
  }
  void add(const c10::IValue& value) {
    text_ += ';';
    if (value.isTensor() || value.isTensorList() || value.isOptionalTensorList()) {
      if (value.isTensor()) return add(value.toTensor());
      if (value.isTensorList())
        for (const at::Tensor& tensor : value.toTensorVector()) add(tensor);
      if (value.isOptionalTensorList())
        for (const auto& tensor : value.toOptionalTensorVector())
          add(tensor.value_or(at::Tensor()));
    } else if (value.isList()) {
      for (const c10::IValue& element : value.toListRef()) add(element);
      text_ += ']';
    } else if (value.isInt()) {
      text_ += 'i';
      add_number(value.toInt());
    } else if (value.isDouble()) {
      text_ += 'd';
      add_number(value.toDouble());
    } else if (value.isBool()) {
      text_ += value.toBool() ? "b1" : "b0";
    } else if (value.isString()) {
      text_ += 's' + value.toStringRef();
    } else if (value.isNone()) {
      text_ += 'n';
    } else if (!value.isDevice() && !value.isGenerator()) {
      complete_ = false;
    }
  }

  std::string text_;
  bool complete_ = true;
};

at::Tensor meta_stand_in(const at::Tensor& tensor) {
  at::Tensor made(
      at::detail::empty_strided_meta(tensor.sizes(), tensor.strides(), tensor.scalar_type()));
  keep_number_mark(tensor, made);
  return made;
}

at::Tensor cpu_stand_in(const at::Tensor& tensor, int value) {
  at::Tensor made(
      at::detail::empty_strided_cpu(tensor.sizes(), tensor.strides(), tensor.scalar_type()));
  made.fill_(value);
  keep_number_mark(tensor, made);
  return made;
}

PredictedTensor described(const at::Tensor& tensor) {
  if (!tensor.defined()) return {};
  return {true, tensor.scalar_type(), tensor.sizes().vec(), tensor.strides().vec()};
}

/// Calls the operator on stand-ins and describes what comes out.
template <class StandIn>
Prediction run_on(const c10::OperatorHandle& op, const Stack& arguments, at::DeviceType device,
                  const StandIn& stand_in) {
  Stack stack;
  for (const c10::IValue& value : arguments) {
    if (value.isDevice()) {
      stack.emplace_back(c10::Device(device));
    } else if (value.isGenerator()) {
      stack.emplace_back(at::detail::createCPUGenerator());
    } else {
      stack.push_back(map_tensors(value, stand_in));
    }
  }
  Prediction made;
  made.outs.resize(arguments.size());
  const Stack given = stack;
  op.callBoxed(&stack);
  for (const c10::IValue& value : stack) {
    Prediction::Return& one = made.returns.emplace_back();
    one.is_list = value.isTensorList();
    if (value.isTensor()) one.tensors.push_back(described(value.toTensor()));
    if (value.isTensorList())
      for (const at::Tensor& tensor : value.toTensorVector())
        one.tensors.push_back(described(tensor));
  }
  for (std::size_t i = 0; i < arguments.size(); ++i)
    if (op.schema().arguments()[i].is_out())
      visit_tensors(given[i],
                    [&](const at::Tensor& tensor) { made.outs[i].push_back(described(tensor)); });
  return made;
}

/// Structured operators and their `out` variants; for others LibTorch's Meta kernel may give other
/// strides than the CPU's.
bool tells_shapes(const c10::OperatorHandle& op) {
  if (!op.hasKernelForDispatchKey(c10::DispatchKey::Meta)) return false;
  return op.hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutogradNonFunctional) ||
         op.operator_name().overload_name.ends_with("out");
}

/// Zeros are valid indices. Operators that refuse zeros get ones, and may refuse these, too.
Prediction run_on_cpu(const c10::OperatorHandle& op, const Stack& arguments) {
  const auto filled_with = [](int value) {
    return [value](const at::Tensor& tensor) { return cpu_stand_in(tensor, value); };
  };
  try {
    return run_on(op, arguments, at::kCPU, filled_with(0));
  } catch (const std::exception&) {
    return run_on(op, arguments, at::kCPU, filled_with(1));
  }
}

Prediction dry_run(const c10::OperatorHandle& op, const Stack& arguments) {
  if (!op.hasTag(at::Tag::nondeterministic_seeded)) return run_on_cpu(op, arguments);
  // The default generator must look as if this had not happened.
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const auto state = generator.unsafeGetGeneratorImpl()->get_state();
  Prediction made = run_on_cpu(op, arguments);
  generator.unsafeGetGeneratorImpl()->set_state(*state);
  return made;
}

}  // namespace

KernelScope::KernelScope()
    : no_autograd_(c10::autograd_dispatch_keyset_with_ADInplaceOrView),
      no_autocast_(c10::autocast_dispatch_keyset) {}

Prediction predict_shapes(const c10::OperatorHandle& op, const Stack& arguments) {
  const KernelScope scope;
  if (tells_shapes(op)) return run_on(op, arguments, at::kMeta, meta_stand_in);
  static std::mutex mutex;
  static auto* const known = new std::unordered_map<std::string, Prediction>();
  const CallKey key(op, arguments);
  if (key.text()) {
    const std::lock_guard lock(mutex);
    const auto found = known->find(*key.text());
    if (found != known->end()) return found->second;
  }
  Prediction made = dry_run(op, arguments);
  if (key.text()) {
    const std::lock_guard lock(mutex);
    known->emplace(*key.text(), made);
  }
  return made;
}

}  // namespace trireme::inline v0::testing
