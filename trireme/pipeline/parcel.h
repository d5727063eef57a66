// Parcel: what crosses one cut of the pipeline for one micro-batch, in one direction.
//
// Forward: the tensors of every value that crosses, of any type, and which of them carry a
// gradient. Backward: the gradients of those; one that autograd did not make is absent. Strides are
// sent with the sizes, so that the kernels after a cut see the same layout as without it.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "trireme/tensor/batch.h"

namespace trireme::inline v0::parallel {

struct TensorLayout {
  at::ScalarType type = at::kFloat;
  std::vector<std::int64_t> sizes, strides;  // without holes or overlaps
  bool carries_gradient = false;

  std::int64_t count() const noexcept;
  /// Not initialised.
  at::Tensor allocate(at::Device device) const;
  /// "f32 [2, 8, 16]".
  std::string text() const;
  /// Whether type, sizes and gradient agree. Strides may differ, since a copy can change them.
  bool agrees(const TensorLayout& other) const noexcept {
    return type == other.type && sizes == other.sizes && carries_gradient == other.carries_gradient;
  }
};
/// The layout in which `tensor` is sent: its own strides if it has no holes, else contiguous.
TensorLayout layout_of(const at::Tensor& tensor, bool carries_gradient);
/// " tokens i64 [2, 8]" for each field: the shapes of a micro-batch's values depend on these.
std::string layouts_of(const MicroBatch& micro);

struct Parcel {
  bool failed = false;              // the pass that makes it failed: ignore what follows
  std::vector<std::size_t> counts;  // tensors of each value, in the edge's order
  std::vector<TensorLayout> layouts;
  std::vector<at::Tensor> tensors;  // undefined: absent (gradients only)
};

/// counts and layouts as numbers, and back. MismatchError for numbers that encode none.
std::vector<std::int64_t> words_of(const Parcel& parcel);
Parcel parcel_of(std::span<const std::int64_t> words);

/// `tensor` in the strides of `layout`: itself, or a copy; zeros for an undefined one.
at::Tensor fitted(const at::Tensor& tensor, const TensorLayout& layout, at::Device device);

}  // namespace trireme::inline v0::parallel
