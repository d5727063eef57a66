// The common parts of stores of saved tensors: which tensors they take, SavedView (what they keep
// besides the storage) and RecentSlots. Internal to memory/.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

namespace trireme::inline v0::memory {

constexpr std::size_t kSmallestStored = 16 << 10;  // bytes; moving less costs too much

/// Whether a store takes the tensor's storage: dense, on `device`, not too small, and not a
/// parameter's. Parameters are in memory anyway, and ZeRO-3 may move them before backward.
bool can_be_stored(const at::Tensor& tensor, c10::DeviceType device);

/// Whether the tensor's elements are dense and at most an eighth of its storage, such as a
/// micro-batch that is a view of a whole data set.
bool is_small_part(const at::Tensor& tensor);
/// A copy of such a tensor with the same strides in a storage of its own. Its address has the same
/// last 6 bits, because results of kernels may depend on them.
at::Tensor copy_of_part(const at::Tensor& tensor);

/// How to rebuild a tensor over its storage, and the version that was saved. With saved-tensor
/// hooks, LibTorch does not check for in-place changes itself.
struct SavedView {
  explicit SavedView(const at::Tensor& tensor) : SavedView(tensor, tensor) {}
  /// `kept` has the elements of `tensor`, in another storage.
  SavedView(const at::Tensor& tensor, const at::Tensor& kept);
  /// Throws c10::Error if the tensor was changed in place since.
  void check() const;
  at::Tensor over(c10::Storage storage) const;

  std::vector<std::int64_t> sizes, strides;
  std::int64_t offset = 0;
  at::TensorOptions options;
  c10::VariableVersion counter;
  std::uint32_t version = 0;
};

/// Finds the slot that already has a storage's bytes: a storage that two nodes save is stored once.
template <class Slot>
class RecentSlots {
 public:
  /// Null if there is none, or if the storage was changed after add().
  std::shared_ptr<Slot> find(const at::Tensor& tensor) const {
    const auto found = slots_.find(tensor.storage().unsafeGetStorageImpl());
    if (found == slots_.end() || found->second.version != version_of(tensor) ||
        found->second.storage.expired())
      return nullptr;
    return found->second.slot.lock();
  }
  void add(const at::Tensor& tensor, const std::shared_ptr<Slot>& slot) {
    c10::StorageImpl* const memory = tensor.storage().unsafeGetStorageImpl();
    const auto storage = c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(memory);
    slots_.insert_or_assign(memory,
                            Entry{c10::weak_intrusive_ptr(storage), version_of(tensor), slot});
  }
  void forget_freed() {
    std::erase_if(slots_, [](const auto& one) { return one.second.storage.expired(); });
  }

 private:
  // Valid as long as the storage lives.
  struct Entry {
    c10::weak_intrusive_ptr<c10::StorageImpl> storage;
    std::uint32_t version = 0;
    std::weak_ptr<Slot> slot;
  };
  static std::uint32_t version_of(const at::Tensor& tensor) {
    return static_cast<std::uint32_t>(tensor._version());
  }

  std::unordered_map<const c10::StorageImpl*, Entry> slots_;
};

}  // namespace trireme::inline v0::memory
