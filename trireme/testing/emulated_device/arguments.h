// The tensors among an operator's arguments: tensors, lists of them, and lists with gaps.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/stack.h>

#include <utility>
#include <vector>

namespace trireme::inline v0::testing {

/// A tensor made from a number in the program weighs less in type promotion; `copy` keeps that.
inline void keep_number_mark(const at::Tensor& tensor, const at::Tensor& copy) {
  if (tensor.unsafeGetTensorImpl()->is_wrapped_number())
    copy.unsafeGetTensorImpl()->set_wrapped_number(true);
}

/// `value` with each defined tensor in it replaced by `map(tensor)`.
template <class Map>
c10::IValue map_tensors(const c10::IValue& value, const Map& map) {
  const auto mapped = [&](const at::Tensor& tensor) {
    return tensor.defined() ? map(tensor) : tensor;
  };
  if (value.isTensor()) return mapped(value.toTensor());
  if (value.isTensorList()) {
    c10::List<at::Tensor> made;
    for (const at::Tensor& tensor : value.toTensorVector()) made.push_back(mapped(tensor));
    return made;
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> made;
    for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorVector())
      made.push_back(tensor ? std::optional(mapped(*tensor)) : std::nullopt);
    return made;
  }
  return value;
}

template <class Visit>
void visit_tensors(const c10::IValue& value, const Visit& visit) {
  if (!value.isTensor() && !value.isTensorList() && !value.isOptionalTensorList()) return;
  map_tensors(value, [&](const at::Tensor& tensor) {
    visit(tensor);
    return tensor;
  });
}

/// Takes the last `count` values off `stack`.
inline torch::jit::Stack take_arguments(torch::jit::Stack& stack, std::size_t count) {
  torch::jit::Stack taken(std::make_move_iterator(stack.end() - static_cast<std::ptrdiff_t>(count)),
                          std::make_move_iterator(stack.end()));
  torch::jit::drop(stack, count);
  return taken;
}

}  // namespace trireme::inline v0::testing
