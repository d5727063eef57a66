// Parcel: what crosses one cut of the pipeline for one micro-batch, in one direction.
//
// Forward: the tensors of every value that crosses, of any type, and which of them carry a
// gradient. Back: the gradients of those; one that autograd did not make is absent. Strides travel
// with the sizes, so that the kernels after a cut meet what they would have met without it. Plain
// values.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace trireme {
inline namespace v0 {
namespace parallel {

struct TensorLayout {
  at::ScalarType type = at::kFloat;
  std::vector<std::int64_t> sizes, strides;  // without holes or overlaps
  bool carries_gradient = false;

  std::int64_t count() const noexcept;
  /// Not initialised.
  at::Tensor allocate() const;
  /// "f32 [2, 8, 16]".
  std::string text() const;
  /// The same tensor for who reads it; strides aside, which a copy can mend.
  bool agrees(const TensorLayout& other) const noexcept {
    return type == other.type && sizes == other.sizes && carries_gradient == other.carries_gradient;
  }
};
/// Of `tensor` as it travels: with its own strides where it has no holes, else as a contiguous
/// copy.
TensorLayout layout_of(const at::Tensor& tensor, bool carries_gradient);

struct Parcel {
  bool failed = false;              // its maker could not make it: nothing below counts
  std::vector<std::size_t> counts;  // tensors of each value, in the edge's order
  std::vector<TensorLayout> layouts;
  std::vector<at::Tensor> tensors;  // undefined: absent (gradients alone)
};

/// counts and layouts as numbers, and back. MismatchError for numbers that are none.
std::vector<std::int64_t> words_of(const Parcel& parcel);
Parcel parcel_of(std::span<const std::int64_t> words);

/// The memory of `tensor` as `layout` has it: its own, or a copy; zeros for an undefined one.
at::Tensor fitted(const at::Tensor& tensor, const TensorLayout& layout);

}  // namespace parallel
}  // namespace v0
}  // namespace trireme
