// Tensors of an emulated device, seen as memory: CPU tensors over the same bytes, the bytes that a
// tensor covers, storages that grow.
#pragma once

#include <ATen/core/Tensor.h>

#include <unordered_map>
#include <vector>

#include "trireme/testing/emulated_device/race_check.h"

namespace trireme::inline v0::testing {

inline bool is_emulated(const at::Tensor& tensor) {
  return tensor.defined() && tensor.device().is_privateuseone();
}

/// Makes CPU tensors like emulated ones: one CPU storage per storage, one CPU tensor per tensor.
class CpuAliases {
 public:
  enum class Mapping {
    Hidden,  // for the executor
    Shown,   // for the host: has the right sizes, but its bytes cannot be touched
  };
  explicit CpuAliases(Mapping mapping = Mapping::Hidden) : mapping_(mapping) {}
  at::Tensor of(const at::Tensor& tensor);

 private:
  Mapping mapping_;
  std::unordered_map<c10::StorageImpl*, c10::Storage> storages_;
  std::unordered_map<c10::TensorImpl*, at::Tensor> tensors_;
};

/// A tensor on the storage of `base` with the sizes, strides, offset and type of `shape`.
at::Tensor view_like(const at::Tensor& base, const at::Tensor& shape);

struct ByteRun {
  std::byte* begin = nullptr;
  std::size_t bytes = 0;
};
/// The bytes of a tensor. If these are more than `max_runs` runs: one that covers them all.
std::vector<ByteRun> byte_runs(const at::Tensor& tensor, std::size_t max_runs);
void add_accesses(std::vector<Access>& accesses, const at::Tensor& tensor, bool write);

/// Resizes a storage of an emulated device; the bytes move in the current stream's order.
void resize_storage(const c10::Storage& storage, std::size_t bytes);

}  // namespace trireme::inline v0::testing
