#include "trireme/memory/saved_view.h"

#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>

#include <cstdint>
#include <utility>

namespace trireme::inline v0::memory {
namespace {

bool is_parameter(const at::Tensor& tensor) {
  const at::TensorBase& base = tensor.is_view() ? tensor._base() : tensor;
  return base.is_leaf() && base.requires_grad();
}

}  // namespace

bool can_be_stored(const at::Tensor& tensor, c10::DeviceType device) {
  return tensor.defined() && tensor.device().type() == device && tensor.layout() == at::kStrided &&
         tensor.has_storage() && !tensor.is_inference() && !tensor.is_neg() && !tensor.is_conj() &&
         tensor.storage().nbytes() >= kSmallestStored && !is_parameter(tensor);
}

bool is_small_part(const at::Tensor& tensor) {
  return tensor.is_non_overlapping_and_dense() && tensor.nbytes() <= tensor.storage().nbytes() / 8;
}

std::int64_t offset_in_copy(const at::Tensor& tensor) {
  constexpr std::uintptr_t kAlignment = 64;  // of memory that LibTorch allocates
  const auto address = reinterpret_cast<std::uintptr_t>(tensor.const_data_ptr());
  return static_cast<std::int64_t>(address % kAlignment / tensor.itemsize());
}

at::Tensor copy_of_part(const at::Tensor& tensor) {
  const c10::AutoGradMode no_grad(false);
  const std::int64_t offset = offset_in_copy(tensor);
  return at::empty({offset + tensor.numel()}, tensor.options().requires_grad(false))
      .as_strided(tensor.sizes(), tensor.strides(), offset)
      .copy_(tensor.detach());
}

SavedView::SavedView(const at::Tensor& tensor, std::int64_t own_offset)
    : sizes(tensor.sizes().vec()),
      strides(tensor.strides().vec()),
      offset(own_offset),
      options(tensor.options().requires_grad(false)),
      counter(tensor.unsafeGetTensorImpl()->version_counter()),
      version(counter.current_version()) {}

void SavedView::check() const {
  TORCH_CHECK(counter.current_version() == version,
              "one of the variables needed for gradient computation has been modified by an "
              "inplace operation: ",
              options.dtype(), " ", at::IntArrayRef(sizes), " is at version ",
              counter.current_version(), "; expected version ", version, " instead.");
}

at::Tensor SavedView::over(c10::Storage storage) const {
  return at::empty({0}, options).set_(std::move(storage), offset, sizes, strides);
}

}  // namespace trireme::inline v0::memory
