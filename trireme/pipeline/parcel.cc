#include "trireme/pipeline/parcel.h"

#include <ATen/ops/empty_strided.h>
#include <c10/core/GradMode.h>
#include <c10/util/accumulate.h>

#include "trireme/base/buffer.h"
#include "trireme/base/error.h"
#include "trireme/base/shape_text.h"
#include "trireme/tensor/convert.h"

namespace trireme::inline v0::parallel {

std::int64_t TensorLayout::count() const noexcept { return c10::multiply_integers(sizes); }

at::Tensor TensorLayout::allocate(at::Device device) const {
  return at::empty_strided(sizes, strides, at::TensorOptions(device).dtype(type));
}

std::string TensorLayout::text() const { return tensor_text(tensor::dtype_of(type), sizes); }

TensorLayout layout_of(const at::Tensor& tensor, bool carries_gradient) {
  TensorLayout layout{.type = tensor.scalar_type(),
                      .sizes = tensor.sizes().vec(),
                      .strides = tensor.strides().vec(),
                      .carries_gradient = carries_gradient};
  if (tensor.is_non_overlapping_and_dense()) return layout;
  std::int64_t stride = 1;
  for (std::size_t i = layout.sizes.size(); i-- > 0;) {
    layout.strides[i] = stride;
    stride *= std::max<std::int64_t>(layout.sizes[i], 1);
  }
  return layout;
}

std::string layouts_of(const MicroBatch& micro) {
  std::string text;
  for (const auto& [name, field] : micro.fields)
    text += " " + name + " " + layout_of(field, false).text();
  return text;
}

// [values, tensors of each ...] [type, carries, dims, sizes ..., strides ...] of each tensor
std::vector<std::int64_t> words_of(const Parcel& parcel) {
  std::vector<std::int64_t> words{static_cast<std::int64_t>(parcel.counts.size())};
  for (const std::size_t count : parcel.counts) words.push_back(static_cast<std::int64_t>(count));
  for (const TensorLayout& layout : parcel.layouts) {
    words.insert(words.end(),
                 {static_cast<std::int64_t>(layout.type), layout.carries_gradient ? 1 : 0,
                  static_cast<std::int64_t>(layout.sizes.size())});
    words.insert(words.end(), layout.sizes.begin(), layout.sizes.end());
    words.insert(words.end(), layout.strides.begin(), layout.strides.end());
  }
  return words;
}

Parcel parcel_of(std::span<const std::int64_t> words) {
  std::size_t at = 0;
  const auto next = [&]() -> std::int64_t {
    if (at >= words.size() || words[at] < 0)
      throw MismatchError(
          "a pipeline stage received a description of its inputs that it cannot read",
          {.operation = "pipeline", .advice = "Run the same build of Trireme on every rank."});
    return words[at++];
  };
  Parcel parcel;
  std::size_t tensors = 0;
  for (std::int64_t left = next(); left > 0; --left) {
    parcel.counts.push_back(static_cast<std::size_t>(next()));
    tensors += parcel.counts.back();
  }
  while (parcel.layouts.size() < tensors) {
    TensorLayout& layout = parcel.layouts.emplace_back();
    layout.type = static_cast<at::ScalarType>(next());
    layout.carries_gradient = next() != 0;
    const std::int64_t dims = next();
    for (std::int64_t i = 0; i < dims; ++i) layout.sizes.push_back(next());
    for (std::int64_t i = 0; i < dims; ++i) layout.strides.push_back(next());
  }
  return parcel;
}

at::Tensor fitted(const at::Tensor& tensor, const TensorLayout& layout, at::Device device) {
  const c10::AutoGradMode no_grad(false);
  if (tensor.defined() && tensor.strides() == at::IntArrayRef(layout.strides)) return tensor;
  const at::Tensor copy = layout.allocate(device);
  return tensor.defined() ? copy.copy_(tensor) : copy.zero_();
}

}  // namespace trireme::inline v0::parallel
