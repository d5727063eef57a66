// SavedView: what a store of saved tensors keeps of a tensor besides its storage. Internal to memory/.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace trireme::inline v0::memory {

constexpr std::size_t kSmallestStored = 16 << 10;  // bytes; for less, moving them costs too much

/// Whether a store takes the tensor's storage: a dense one of `device`, not too small, and not a
/// parameter's: those are in memory anyway, and ZeRO-3 may have moved them by backward.
bool can_be_stored(const at::Tensor& tensor, c10::DeviceType device);

/// How to rebuild a tensor over its storage, and the version that was saved. With saved-tensor
/// hooks, LibTorch does not check for in-place changes itself.
struct SavedView {
  explicit SavedView(const at::Tensor& tensor);
  /// Throws c10::Error if the tensor was changed in place since.
  void check() const;
  at::Tensor over(c10::Storage storage) const;

  std::vector<std::int64_t> sizes, strides;
  std::int64_t offset = 0;
  at::TensorOptions options;
  c10::VariableVersion counter;
  std::uint32_t version = 0;
};

}  // namespace trireme::inline v0::memory
