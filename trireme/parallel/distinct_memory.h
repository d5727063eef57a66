// DistinctMemory: refuses a model in which two tensors share memory without being one.
//
// A view of another parameter's memory is a parameter of its own to autograd and the optimizer: it
// gets its own gradient and its own update, and a strategy that moves parameters (ZeRO, blocks)
// would take the two apart without a word. What is meant to be one weight is one tensor under two
// names, or tied (Blocks::tie). Not thread safe.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/StorageImpl.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace trireme {
inline namespace v0 {
namespace parallel {

class DistinctMemory {
 public:
  /// Each tensor once. Throws ConfigError naming both where an element of this one is an element of
  /// one before it and at least one of the two is `trained`, and where two of its own elements are
  /// one (an expanded tensor). Views that lie side by side are taken. Memory that comes from
  /// outside LibTorch in several pieces (from_blob) is not looked through.
  void add(const std::string& name, const at::Tensor& tensor, bool trained);

 private:
  struct Extent {
    std::string name;
    bool trained = false;
    std::int64_t offset = 0, width = 0;  // in elements; bytes of one
    std::vector<std::int64_t> sizes, strides;
    std::int64_t begin() const { return offset * width; }
    std::int64_t end() const;
    at::Tensor elements() const;  // places in the storage, in elements
    bool contiguous() const;
  };
  static bool share(const Extent& a, const Extent& b);
  static void refuse_own(const Extent& extent);

  // The weak pointer keeps a storage's address from being used again.
  struct Storage {
    c10::weak_intrusive_ptr<c10::StorageImpl> storage;
    std::vector<Extent> extents;
  };
  std::map<const c10::StorageImpl*, Storage> storages_;
};

}  // namespace parallel
}  // namespace v0
}  // namespace trireme
