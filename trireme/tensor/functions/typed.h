// Helpers of the autograd functions: from a tensor's type to the kernels' type, raw pointers.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <optional>

#include "trireme/base/buffer.h"
#include "trireme/base/check.h"
#include "trireme/kernel/elementwise.h"
#include "trireme/kernel/transformer.h"

namespace trireme::inline v0::tensor {

using kernel::Stat;

/// Calls body.template operator()<T>() with T = float, double, BFloat16 or Float16.
template <class Body>
void for_type(at::ScalarType type, Body body) {
  switch (type) {
    case at::kFloat:
      return body.template operator()<float>();
    case at::kDouble:
      return body.template operator()<double>();
    case at::kBFloat16:
      return body.template operator()<BFloat16>();
    case at::kHalf:
      return body.template operator()<Float16>();
    default:
      TRIREME_CHECK(std::string(c10::toString(type)) == "float, double, bfloat16 or half");
  }
}

/// The first element; null for an undefined tensor. The caller must have checked the type.
template <class T>
T* data_of(const at::Tensor& tensor) {
  return tensor.defined() ? static_cast<T*>(tensor.data_ptr()) : nullptr;
}

/// For arguments of a torch::autograd::Function: they may be absent, but not undefined tensors.
inline std::optional<at::Tensor> maybe(const at::Tensor& tensor) {
  return tensor.defined() ? std::optional<at::Tensor>(tensor) : std::nullopt;
}
inline at::Tensor or_undefined(const std::optional<at::Tensor>& tensor) {
  return tensor.value_or(at::Tensor());
}

/// Casts as autocast on the CPU casts operands of products, and never fp64. Not through its cache: a
/// copy that was made without gradients would be used again where they are needed.
at::Tensor cast_by_autocast(const at::Tensor& tensor);
/// While it lives, autocast converts no operands of this thread's LibTorch operations.
struct NoAutocast : c10::impl::ExcludeDispatchKeyGuard {
  NoAutocast() : ExcludeDispatchKeyGuard(c10::autocast_dispatch_keyset) {}
};

/// Stored in 16 bits, computed in fp32.
template <class T>
inline constexpr bool kIsHalf = !std::is_same_v<T, Stat<T>>;
inline at::ScalarType stat_type(at::ScalarType type) {
  return type == at::kDouble ? at::kDouble : at::kFloat;
}
inline at::Tensor empty(at::IntArrayRef sizes, at::ScalarType type) {
  return at::empty(sizes, at::TensorOptions().dtype(type));
}
/// empty() on the device of `like`.
inline at::Tensor empty_near(const at::Tensor& like, at::IntArrayRef sizes, at::ScalarType type) {
  return at::empty(sizes, like.options().dtype(type));
}
/// fp32 rounded to bf16 or fp16; unchanged if it has `type` already.
inline at::Tensor narrowed(const at::Tensor& wide, at::ScalarType type) {
  if (type == wide.scalar_type()) return wide;
  at::Tensor narrow = empty(wide.sizes(), type);
  for_type(type, [&]<class T>() {
    if constexpr (kIsHalf<T>)
      kernel::convert(static_cast<const float*>(wide.const_data_ptr()),
                      static_cast<T*>(narrow.data_ptr()), static_cast<std::size_t>(wide.numel()));
  });
  return narrow;
}
inline std::size_t unsign(std::int64_t x) { return static_cast<std::size_t>(x); }
inline std::size_t size_of_dim(const at::Tensor& tensor, std::int64_t dim) {
  return unsign(tensor.size(dim));
}
inline std::size_t count_of(const at::Tensor& tensor) { return unsign(tensor.numel()); }

}  // namespace trireme::inline v0::tensor
