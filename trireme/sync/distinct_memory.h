// DistinctMemory: refuses a model in which two tensors share memory without being one tensor.
//
// Autograd and the optimizer treat a view of a parameter as a separate parameter, with its own
// gradient and update. A strategy that moves parameters (ZeRO, blocks) would silently separate the
// two. A shared weight must be one tensor under two names, or tied (Blocks::tie). Not thread safe.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/StorageImpl.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace trireme::inline v0::parallel {

class DistinctMemory {
 public:
  /// Call once per tensor. ConfigError naming both tensors if this one shares an element with an
  /// earlier one and at least one of the two is `trained`; ConfigError if elements of a trained
  /// tensor share memory with each other (an expanded tensor). Views without common elements are
  /// accepted. Overlaps between storages from outside LibTorch (from_blob) are not found.
  void add(const std::string& name, const at::Tensor& tensor, bool trained);
  /// The same for a trained tensor that will be given other memory. ConfigError also if it was
  /// added before under another name: each must belong to one use.
  void add_leaf(const std::string& name, const at::Tensor& tensor);

 private:
  struct Extent {
    std::string name;
    bool trained = false;
    bool dense = false;  // fills its memory without gaps, and no two elements share memory
    std::int64_t offset = 0, width = 0;  // in elements; bytes per element
    std::vector<std::int64_t> sizes, strides;
    std::int64_t begin() const { return offset * width; }
    std::int64_t end() const;
    at::Tensor elements() const;  // indices into the storage, in elements
  };
  static bool share(const Extent& a, const Extent& b);
  static void refuse_own(const Extent& extent);

  // The weak pointer keeps a storage's address from being used again.
  struct Storage {
    c10::weak_intrusive_ptr<c10::StorageImpl> storage;
    std::vector<Extent> extents;
  };
  std::map<const c10::StorageImpl*, Storage> storages_;
  std::map<const void*, std::string> leaf_names_;  // by TensorImpl
};

}  // namespace trireme::inline v0::parallel
