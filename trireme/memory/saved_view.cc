#include "trireme/memory/saved_view.h"

#include <ATen/ops/empty.h>

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

SavedView::SavedView(const at::Tensor& tensor)
    : sizes(tensor.sizes().vec()),
      strides(tensor.strides().vec()),
      offset(tensor.storage_offset()),
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
